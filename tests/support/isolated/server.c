/* A small MCP server whose tools end well, crash, hang, or take memory without end. It starts fast, says who it is
 * with a word that no other process says, and lives for a minute. */

#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#define LINE_MAX_BYTES 65536
#define MB ((size_t)1 << 20)
/* Above the limits of those stories that mean it, below what a process has by default. */
#define LEAK_MAX_MB 96
/* Nobody lives longer than this, even if everything else fails; 0 is for ever. */
#ifndef LIFETIME_SECONDS
#define LIFETIME_SECONDS 60
#endif

static int calls(const char *line, const char *tool) {
    char word[64];
    snprintf(word, sizeof word, "\"name\":\"%s\"", tool);
    return strstr(line, word) != NULL;
}

static void leak(void) {
    for (int taken = 0; taken < LEAK_MAX_MB; taken++) {
        char *page = mmap(NULL, MB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (page == MAP_FAILED) {
            fprintf(stderr, "no more memory after %d MB\n", taken);
            _exit(9);
        }
        memset(page, 1, MB);
    }
}

int main(void) {
    static char line[LINE_MAX_BYTES];
    unsigned long long me;
    if (getrandom(&me, sizeof me, 0) != sizeof me) return 1;
    alarm(LIFETIME_SECONDS);
    setvbuf(stdout, NULL, _IOLBF, 0);
    while (fgets(line, sizeof line, stdin)) {
        char *id = strstr(line, "\"id\":");
        if (id == NULL) continue;
        long number = atol(id + 5);
        if (strstr(line, "\"initialize\"")) {
            printf("{\"jsonrpc\":\"2.0\",\"id\":%ld,\"result\":{\"protocolVersion\":\"2025-06-18\",\"capabilities\":{\"tools\":{}}}}\n", number);
        } else if (strstr(line, "\"tools/list\"")) {
            printf("{\"jsonrpc\":\"2.0\",\"id\":%ld,\"result\":{\"tools\":[", number);
            const char *tools[] = {"who", "crash", "hang", "leak"};
            for (int at = 0; at < 4; at++) {
                printf("%s{\"name\":\"%s\",\"inputSchema\":{\"type\":\"object\"}}", at ? "," : "", tools[at]);
            }
            printf("]}}\n");
        } else if (strstr(line, "\"tools/call\"")) {
            if (calls(line, "crash")) {
                fprintf(stderr, "this is the end\n");
                abort();
            }
            if (calls(line, "hang")) {
                signal(SIGTERM, SIG_IGN);
                for (;;) pause();
            }
            if (calls(line, "leak")) leak();
            printf("{\"jsonrpc\":\"2.0\",\"id\":%ld,\"result\":{\"content\":[{\"type\":\"text\",\"text\":\"%llu\"}]}}\n", number, me);
        } else {
            printf("{\"jsonrpc\":\"2.0\",\"id\":%ld,\"error\":{\"code\":-32601,\"message\":\"no such method\"}}\n", number);
        }
    }
    return 0;
}
