"""Print line coverage per layer from the summary cargo-llvm-cov wrote, and fail below the bar."""

import collections
import json
import sys

BAR_ALL = 85
BAR = {"domain": 90, "mcp": 90, "call": 90, "store": 90}


def main(report):
    files = json.load(open(report))["data"][0]["files"]
    lines = collections.defaultdict(lambda: [0, 0])
    for file in files:
        _, found, inside = file["filename"].rpartition("/src/")
        if not found:
            continue
        layer = inside.split("/")[0] if "/" in inside else "(root)"
        for name in (layer, "all"):
            lines[name][0] += file["summary"]["lines"]["covered"]
            lines[name][1] += file["summary"]["lines"]["count"]

    missing = [layer for layer in BAR if layer not in lines]
    below = []
    print(f"{'layer':10} {'covered':>8} {'lines':>8} {'':>8}  bar")
    for layer, (covered, count) in sorted(lines.items(), key=lambda item: (item[0] == "all", item[0])):
        percent = 100 * covered / count if count else 100.0
        bar = BAR_ALL if layer == "all" else BAR.get(layer)
        ok = bar is None or percent > bar
        print(f"{layer:10} {covered:8} {count:8} {percent:7.1f}%  {f'> {bar}' if bar else ''}{'' if ok else '  BELOW'}")
        if not ok:
            below.append(layer)
    for layer in missing:
        print(f"{layer}: no line was measured")
    return 1 if below or missing else 0


sys.exit(main(sys.argv[1]))
