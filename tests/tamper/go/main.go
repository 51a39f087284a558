// Verifies what leaves a colibri ledger with the packages that Go verifies its own checksum
// database with: golang.org/x/mod/sumdb/note and tlog, as Debian's golang-go brings them.
//
//	verify KEY FILE...
//
// One line a file, as verify.py prints it; exit 1 if any is refused.
package main

import (
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

func main() {
	keys, err := readKeys(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	code := 0
	for _, path := range os.Args[2:] {
		text, err := os.ReadFile(path)
		if err == nil {
			err = verify(string(text), keys)
		}
		if err != nil {
			fmt.Printf("%s: refused: %v\n", path, err)
			code = 1
		} else {
			fmt.Printf("%s: valid\n", path)
		}
	}
	os.Exit(code)
}

func readKeys(path string) (note.Verifiers, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var list []note.Verifier
	for _, line := range strings.Fields(string(text)) {
		verifier, err := note.NewVerifier(line)
		if err != nil {
			return nil, err
		}
		list = append(list, verifier)
	}
	return note.VerifierList(list...), nil
}

func verify(text string, keys note.Verifiers) error {
	head, signed, _ := strings.Cut(text, "\n\n")
	lines := strings.Split(head, "\n")
	switch lines[0] {
	case "c2sp.org/tlog-proof@v1":
		return verifyProof(lines, signed, keys)
	case "colibri/ledger-bundle@v1":
		return verifyBundle(lines, signed, keys)
	default:
		_, _, err := openCheckpoint(text, keys)
		return err
	}
}

func verifyProof(lines []string, signed string, keys note.Verifiers) error {
	if len(lines) < 3 || !strings.HasPrefix(lines[1], "extra ") || !strings.HasPrefix(lines[2], "index ") {
		return errors.New("not a proof")
	}
	record, err := strict.DecodeString(lines[1][len("extra "):])
	if err != nil {
		return err
	}
	index, err := strconv.ParseInt(lines[2][len("index "):], 10, 64)
	if err != nil {
		return err
	}
	var proof tlog.RecordProof
	for _, line := range lines[3:] {
		hash, err := parseHash(line)
		if err != nil {
			return err
		}
		proof = append(proof, hash)
	}
	tree, _, err := openCheckpoint(signed, keys)
	if err != nil {
		return err
	}
	return tlog.CheckRecord(proof, tree.N, tree.Hash, index, tlog.RecordHash(record))
}

func verifyBundle(lines []string, signed string, keys note.Verifiers) error {
	tree, origin, err := openCheckpoint(signed, keys)
	if err != nil {
		return err
	}
	if len(lines) < 3 || lines[1] != "origin "+origin || lines[2] != fmt.Sprintf("records %d", tree.N) {
		return errors.New("another log")
	}
	records := lines[3:]
	if int64(len(records)) != tree.N {
		return errors.New("not all records")
	}
	var stored []tlog.Hash
	reader := tlog.HashReaderFunc(func(indexes []int64) ([]tlog.Hash, error) {
		var hashes []tlog.Hash
		for _, index := range indexes {
			hashes = append(hashes, stored[index])
		}
		return hashes, nil
	})
	for n, record := range records {
		hashes, err := tlog.StoredHashes(int64(n), []byte(record), reader)
		if err != nil {
			return err
		}
		stored = append(stored, hashes...)
	}
	root, err := tlog.TreeHash(tree.N, reader)
	if err == nil && root != tree.Hash {
		err = errors.New("another root")
	}
	return err
}

// openCheckpoint believes a note only if a key of the log's own name signed it.
func openCheckpoint(text string, keys note.Verifiers) (tree tlog.Tree, origin string, err error) {
	opened, err := note.Open([]byte(text), keys)
	if err != nil {
		return tree, "", err
	}
	lines := strings.Split(opened.Text, "\n")
	if len(lines) != 4 || lines[3] != "" || opened.Sigs[0].Name != lines[0] {
		return tree, "", errors.New("not a checkpoint of its log")
	}
	for _, signature := range opened.Sigs {
		if _, err = strict.DecodeString(signature.Base64); err != nil {
			return tree, "", err
		}
	}
	if tree.N, err = strconv.ParseInt(lines[1], 10, 64); err != nil {
		return tree, "", err
	}
	tree.Hash, err = parseHash(lines[2])
	return tree, lines[0], err
}

// strict accepts one spelling only. The packages accept four of some hashes and signatures, which
// is harmless, but then a changed file is not always a refused one.
var strict = base64.StdEncoding.Strict()

func parseHash(text string) (hash tlog.Hash, err error) {
	if _, err = strict.DecodeString(text); err != nil {
		return hash, err
	}
	return tlog.ParseHash(text)
}
