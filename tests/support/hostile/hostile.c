/* A program that misbehaves as it is told. It says "ready" when it does, and what it found out, one
 * line each; the stories read that. Everything it does is bounded, in case nobody holds it. */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/keyctl.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/msg.h>
#include <sys/ptrace.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MB ((size_t)1 << 20)
/* Nobody lives longer than this, even if everything else fails. */
#define LIFETIME_SECONDS 60

static void say(const char *line) {
    dprintf(1, "%s\n", line);
}

/* One line: what was tried, and "ok" or the name of the refusal. */
static void found(const char *what, long outcome) {
    dprintf(1, "%s %s\n", what, outcome >= 0 ? "ok" : strerrorname_np(errno));
}

static void stay(void) {
    for (;;) pause();
}

static void deaf(void) {
    for (int s = 1; s < 32; s++) signal(s, SIG_IGN);
    signal(SIGCHLD, SIG_DFL);
    signal(SIGALRM, SIG_DFL);
}

/* Leaves the group, the session and the parent, twice. */
static void daemons(int count) {
    for (int i = 0; i < count; i++) {
        if (fork() == 0) {
            setsid();
            if (fork() != 0) _exit(0);
            setsid();
            deaf();
            alarm(LIFETIME_SECONDS);
            stay();
        }
        wait(NULL);
    }
}

static void bomb(int most) {
    atomic_int *count = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    atomic_store(count, 1);
    say("ready");
    for (;;) {
        if (atomic_fetch_add(count, 1) >= most) stay();
        pid_t child = fork();
        if (child == 0) {
            alarm(LIFETIME_SECONDS);
            setsid();
        } else if (child < 0) {
            atomic_fetch_sub(count, 1);
            usleep(1000);
        }
    }
}

static pid_t parent_of(pid_t process) {
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)process);
    int file = open(path, O_RDONLY);
    ssize_t length = read(file, text, sizeof text - 1);
    close(file);
    text[length > 0 ? length : 0] = 0;
    const char *rest = strrchr(text, ')');
    int parent = 0;
    return rest && sscanf(rest, ") %*c %d", &parent) == 1 ? parent : 0;
}

/* hold init|helper|both: stops those who keep it, with others around who would be left. Or traces the init, which
 * holds it without stopping it. */
static void hold(const char *who) {
    pid_t init = getppid(), helper = parent_of(init);
    if (helper <= 1) { say("has no helper"); return; }
    daemons(3);
    if (!strcmp(who, "trace")) {
        long traced = ptrace(PTRACE_SEIZE, init, NULL, NULL);
        found("trace", traced < 0 ? traced : ptrace(PTRACE_INTERRUPT, init, NULL, NULL));
        return;
    }
    if (strcmp(who, "init")) kill(helper, SIGSTOP);
    if (!strcmp(who, "both")) kill(init, SIGSTOP);
    say("ready");
    /* It may not live to say anything after this. */
    if (!strcmp(who, "init")) kill(init, SIGSTOP);
}

static void touch_all(char *memory, size_t length) {
    for (size_t at = 0; at < length; at += 4096) memory[at] = 1;
}

static int fill(int file, size_t length) {
    static char block[1 << 16];
    memset(block, 1, sizeof block);
    for (size_t done = 0; done < length; done += sizeof block)
        if (write(file, block, sizeof block) < 0) return -1;
    return 0;
}

/* Not hostile at all: forks that share what their parent has, and touch none of it. */
static void share(size_t mb, int forks) {
    touch_all(malloc(mb * MB), mb * MB);
    for (int i = 0; i < forks; i++)
        if (fork() == 0) stay();
    say("ready");
    stay();
}

#define THREAD (CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM)
#define STACK ((size_t)1 << 14)
#define STACKS 64
static char stacks[STACKS][STACK] __attribute__((aligned(16)));

/* What the other threads take, and how far they have got with it. */
static struct { char *memory; size_t length; atomic_size_t at; atomic_uint threads; } task;

static int fill_alone(void *unused) {
    (void)unused;
    touch_all(task.memory, task.length);
    say("ready");
    stay();
    return 0;
}

/* Takes a little, and leaves the rest and the memory to another thread, without end. */
static int fill_and_pass_on(void *unused) {
    (void)unused;
    size_t at = atomic_fetch_add(&task.at, 1 << 15);
    if (at < task.length) touch_all(task.memory + at, 1 << 15);
    char *stack = stacks[atomic_fetch_add(&task.threads, 1) % STACKS];
    while (clone(fill_and_pass_on, stack + STACK, THREAD, NULL) < 0) {}
    return 0;
}

/* The first thread ends, and leaves everything to others: the process looks dead. */
static void leave_to(int (*other)(void *), size_t length) {
    task.memory = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    task.length = length;
    atomic_store(&task.threads, 1);
    clone(other, stacks[0] + STACK, THREAD, NULL);
    syscall(SYS_exit, 0);
}

/* Memory in System V objects, mapped by nobody once it is filled. */
static void segments(size_t mb) {
    for (size_t done = 0; done < mb; done += 16) {
        char *memory = shmat(shmget(IPC_PRIVATE, 16 * MB, 0600), NULL, 0);
        if (memory == (void *)-1) { found("segments", -1); return; }
        touch_all(memory, 16 * MB);
        shmdt(memory);
    }
}

/* Even empty messages take memory; about as much as a queue may hold of them is a megabyte. */
static void messages(size_t mb) {
    struct { long kind; } empty = {1};
    for (size_t done = 0; done < mb; done++) {
        int queue = msgget(IPC_PRIVATE, 0600);
        if (queue < 0) { found("messages", -1); return; }
        while (msgsnd(queue, &empty, 0, IPC_NOWAIT) == 0) {}
    }
}

static void semaphores(size_t mb) {
    for (size_t done = 0; done < mb; done++)
        if (semget(IPC_PRIVATE, MB / 64, 0600) < 0) { found("semaphores", -1); return; }
}

/* Not hostile: one segment, which several have mapped and use. */
static void attached(size_t mb, int forks) {
    char *memory = shmat(shmget(IPC_PRIVATE, mb * MB, 0600), NULL, 0);
    for (int i = 0; i < forks; i++)
        if (fork() == 0) { touch_all(memory, mb * MB); stay(); }
    touch_all(memory, mb * MB);
    say("ready");
    stay();
}

static void memory(const char *kind, size_t mb, int forks) {
    if (!strcmp(kind, "parent")) share(mb, forks);
    if (!strcmp(kind, "attached")) attached(mb, forks);
    if (!strcmp(kind, "leaderless")) leave_to(fill_alone, mb * MB);
    say("ready");
    if (!strcmp(kind, "passed-on")) leave_to(fill_and_pass_on, mb * MB);
    if (!strcmp(kind, "segments")) segments(mb);
    if (!strcmp(kind, "messages")) messages(mb);
    if (!strcmp(kind, "semaphores")) semaphores(mb);
    if (!strcmp(kind, "malloc")) {
        for (size_t i = 0; i < mb; i++) {
            char *block = malloc(MB);
            if (!block) { say("refused"); stay(); }
            touch_all(block, MB);
        }
    } else if (!strcmp(kind, "forks")) {
        for (int i = 0; i < forks; i++)
            if (fork() == 0) {
                alarm(LIFETIME_SECONDS);
                touch_all(malloc(mb * MB), mb * MB);
                stay();
            }
    } else if (!strcmp(kind, "shared")) {
        touch_all(mmap(NULL, mb * MB, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0), mb * MB);
    } else if (!strcmp(kind, "shm")) {
        found("shm", fill(open("/dev/shm/filled", O_CREAT | O_RDWR, 0600), mb * MB));
    } else if (!strcmp(kind, "child")) {
        /* Only a child goes too far, and is the largest; whoever started it does not care. */
        if (fork() == 0) {
            alarm(LIFETIME_SECONDS);
            touch_all(malloc(16 * MB), 16 * MB);
            found("child", fill(memfd_create("filled", 0), mb * MB));
            stay();
        }
    } else if (!strcmp(kind, "memfd")) {
        found("memfd", fill(memfd_create("filled", 0), mb * MB));
    }
    stay();
}

static void spin(void) {
    deaf();
    say("ready");
    for (volatile unsigned long i = 0;; i++) {}
}

static long used_ms(void) {
    struct timespec used;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return used.tv_sec * 1000 + used.tv_nsec / 1000000;
}

/* One child after the other uses so much processor time, until all have used so much together. Their ends are
 * ignored or waited for, by their parent or, if they are orphans, by whoever takes them in. */
static void burn(const char *how, int each_ms, int all_ms) {
    int ignored = !strcmp(how, "ignored"), orphans = !strcmp(how, "orphans");
    if (ignored) signal(SIGCHLD, SIG_IGN);
    for (int done = 0; done < all_ms; done += each_ms) {
        int end[2];
        char nothing;
        if (pipe(end) < 0) _exit(1);
        if (fork() == 0) {
            if (orphans && fork() != 0) _exit(0);
            while (used_ms() < each_ms) {}
            _exit(0);
        }
        close(end[1]);
        /* It ends when nobody has it open any longer. */
        if (read(end[0], &nothing, 1) < 0) _exit(1);
        close(end[0]);
        if (!ignored) wait(NULL);
    }
    say("done");
}

static void flood(int where) {
    static char block[1 << 16];
    memset(block, 'x', sizeof block);
    say("ready");
    for (;;)
        if (write(where, block, sizeof block) < 0) _exit(1);
}

static void sockets(const char *pathname) {
    const struct { const char *name; int family, type; } kinds[] = {
        {"tcp", AF_INET, SOCK_STREAM}, {"udp", AF_INET, SOCK_DGRAM}, {"tcp6", AF_INET6, SOCK_STREAM},
        {"raw", AF_INET, SOCK_RAW}, {"netlink", AF_NETLINK, SOCK_RAW}, {"packet", AF_PACKET, SOCK_RAW},
        {"vsock", AF_VSOCK, SOCK_STREAM},
    };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        found(kinds[i].name, socket(kinds[i].family, kinds[i].type, 0));
    struct sockaddr_un place = {.sun_family = AF_UNIX};
    strncpy(place.sun_path, pathname, sizeof place.sun_path - 1);
    int one = socket(AF_UNIX, SOCK_STREAM, 0);
    found("pathname", one < 0 ? one : connect(one, (struct sockaddr *)&place, sizeof place));
    struct sockaddr_un hidden = {.sun_family = AF_UNIX};
    strncpy(hidden.sun_path + 1, "colibri-story", sizeof hidden.sun_path - 2);
    int two = socket(AF_UNIX, SOCK_STREAM, 0);
    found("abstract", two < 0 ? two : bind(two, (struct sockaddr *)&hidden, sizeof hidden));
    int pair[2];
    found("pair", socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
}

static struct sockaddr_un at(const char *path) {
    struct sockaddr_un place = {.sun_family = AF_UNIX};
    strncpy(place.sun_path, path, sizeof place.sun_path - 1);
    return place;
}

static int tie(int one, const char *path) {
    struct sockaddr_un place = at(path);
    return connect(one, (struct sockaddr *)&place, sizeof place);
}

static long send_to(int one, const char *path) {
    struct sockaddr_un place = at(path);
    return sendto(one, "out", 3, MSG_DONTWAIT, (struct sockaddr *)&place, sizeof place);
}

static void found_pair(const char *kind, const char *what, long outcome) {
    char words[64];
    snprintf(words, sizeof words, "%s-%s", kind, what);
    found(words, outcome);
}

/* The two ends of a tied pair, and every way to tie one of them to somebody else. */
static void tied(const char *kind, int type, const char *path) {
    int pair[2];
    found_pair(kind, "pair", socketpair(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair));
    found_pair(kind, "plain-pair", socketpair(AF_UNIX, type, 0, pair));
    struct sockaddr none = {.sa_family = AF_UNSPEC};
    found_pair(kind, "connect", tie(pair[0], path));
    found_pair(kind, "untie", connect(pair[0], &none, sizeof none));
    found_pair(kind, "listen", listen(pair[0], 1));
    /* Where an address is no mistake it is overlooked: this reaches the other end, or nobody. */
    send_to(pair[0], path);
    shutdown(pair[0], SHUT_RDWR);
    found_pair(kind, "connect-again", tie(pair[0], path));
    close(pair[1]);
    found_pair(kind, "connect-alone", tie(pair[0], path));
}

/* pairs STREAM PACKETS DATAGRAMS: where somebody listens for each. */
static void pairs(const char *stream, const char *packets, const char *datagrams) {
    tied("stream", SOCK_STREAM, stream);
    tied("packets", SOCK_SEQPACKET, packets);
    const struct { const char *name; long type; } kinds[] = {
        {"datagrams", SOCK_DGRAM}, {"datagrams-quiet", SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK},
        {"datagrams-long", SOCK_DGRAM | 1L << 32}, {"raw", SOCK_RAW}, {"raw-quiet", SOCK_RAW | SOCK_CLOEXEC},
    };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        int pair[2] = {-1, -1};
        found_pair(kinds[i].name, "pair", syscall(SYS_socketpair, (long)AF_UNIX, kinds[i].type, 0L, pair));
        found_pair(kinds[i].name, "send", send_to(pair[0], datagrams));
        found_pair(kinds[i].name, "connect", tie(pair[0], datagrams));
    }
    int other[2];
    found("other-family", socketpair(AF_INET, SOCK_STREAM, 0, other));
}

static int nothing(void *unused) {
    (void)unused;
    return 0;
}

static void escapes(void) {
    static char stack[1 << 16];
    void *top = stack + sizeof stack;
    struct { unsigned long flags[11]; } three = {{CLONE_NEWUSER}};
    found("unshare-user", unshare(CLONE_NEWUSER));
    found("unshare-mount", unshare(CLONE_NEWNS));
    found("clone-user", clone(nothing, top, CLONE_NEWUSER | SIGCHLD, NULL));
    found("clone-pid", clone(nothing, top, CLONE_NEWPID | SIGCHLD, NULL));
    found("clone3", syscall(SYS_clone3, &three, sizeof three));
    found("ptrace", ptrace(PTRACE_ATTACH, 1, NULL, NULL));
    found("vm-read", syscall(SYS_process_vm_readv, 1, NULL, 0, NULL, 0, 0));
    found("kill-init", kill(1, SIGKILL));
    found("io-uring", syscall(SYS_io_uring_setup, 1, stack));
    found("mount", mount("none", "/mnt", "tmpfs", 0, NULL));
    found("umount", umount2("/proc", MNT_DETACH));
    found("bpf", syscall(SYS_bpf, 0, stack, 64));
    found("keyctl", syscall(SYS_keyctl, KEYCTL_GET_KEYRING_ID, KEY_SPEC_SESSION_KEYRING, 0));
    found("userfaultfd", syscall(SYS_userfaultfd, 0));
    found("perf", syscall(SYS_perf_event_open, stack, 0, -1, -1, 0));
    found("handle", syscall(SYS_open_by_handle_at, AT_FDCWD, stack, 0));
    found("setns", setns(0, 0));
    found("chroot", chroot("/tmp"));
    found("x32", syscall(0x40000000 + SYS_getpid));
}

/* files OUTSIDE SECRET INSIDE: a folder and a file that are out of reach, and one that is not. */
static void files(const char *outside, const char *secret, const char *inside) {
    char path[4096], other[4096];
    found("read", open(secret, O_RDONLY));
    snprintf(path, sizeof path, "%s/../../../../../../../..%s", inside, secret);
    found("dots", open(path, O_RDONLY));
    snprintf(path, sizeof path, "%s/link", inside);
    symlink(secret, path);
    found("symlink", open(path, O_RDONLY));
    snprintf(path, sizeof path, "%s/hard", inside);
    found("hardlink", link(secret, path));
    snprintf(path, sizeof path, "/proc/self/root%s", secret);
    found("proc-root", open(path, O_RDONLY));
    snprintf(path, sizeof path, "/proc/1/root%s", secret);
    found("init-root", open(path, O_RDONLY));
    found("init-environ", open("/proc/1/environ", O_RDONLY));
    found("init-memory", open("/proc/1/mem", O_RDWR));
    found("tmpfile", open(outside, O_TMPFILE | O_RDWR, 0600));
    snprintf(path, sizeof path, "%s/new", outside);
    found("create", open(path, O_CREAT | O_WRONLY, 0600));
    snprintf(other, sizeof other, "%s/mine", inside);
    close(open(other, O_CREAT | O_WRONLY, 0600));
    found("rename-out", rename(other, path));
    found("truncate", truncate(secret, 0));
    found("chmod", chmod(secret, 0777));
    found("remove", unlink(secret));
    found("inside", open(other, O_RDWR));
    /* A link that changes while it is followed. */
    snprintf(path, sizeof path, "%s/swap", inside);
    int lost = 0;
    if (fork() == 0) {
        alarm(2);
        for (int i = 0; i < 20000; i++) {
            unlink(path);
            if (symlink(i % 2 ? secret : other, path) != 0) continue;
        }
        _exit(0);
    }
    for (int i = 0; i < 20000; i++) {
        int opened = open(path, O_RDONLY);
        struct stat seen, own;
        if (opened >= 0 && fstat(opened, &seen) == 0 && stat(other, &own) == 0 && seen.st_ino != own.st_ino) lost++;
        if (opened >= 0) close(opened);
    }
    errno = EACCES;
    found("swap", lost ? 0 : -1);
}

static void reach(int count, char **paths) {
    for (int i = 0; i < count; i++) {
        dprintf(1, "read:");
        found(paths[i], open(paths[i], O_RDONLY));
        dprintf(1, "write:");
        found(paths[i], open(paths[i], O_WRONLY));
        struct sockaddr_un place = {.sun_family = AF_UNIX};
        strncpy(place.sun_path, paths[i], sizeof place.sun_path - 1);
        dprintf(1, "speak:");
        found(paths[i], connect(socket(AF_UNIX, SOCK_STREAM, 0), (struct sockaddr *)&place, sizeof place));
    }
}

static void descriptors(void) {
    for (int fd = 3; fd < 1024; fd++)
        if (fcntl(fd, F_GETFD) >= 0) dprintf(1, "open %d\n", fd);
    say("done");
}

static void many_files(const char *folder, int most) {
    char path[4096];
    int made = 0;
    for (; made < most; made++) {
        snprintf(path, sizeof path, "%s/%d", folder, made);
        int file = open(path, O_CREAT | O_WRONLY, 0600);
        if (file < 0) break;
        close(file);
    }
    found("last", made == most ? 0 : -1);
}

int main(int count, char **words) {
    const char *verb = count > 1 ? words[1] : "";
    int number = count > 2 ? atoi(words[2]) : 0;
    alarm(LIFETIME_SECONDS);
    if (!strcmp(verb, "daemons")) { deaf(); daemons(number); say("ready"); stay(); }
    if (!strcmp(verb, "leave")) { daemons(number); say("ready"); return 0; }
    if (!strcmp(verb, "deaf")) { deaf(); say("ready"); stay(); }
    if (!strcmp(verb, "stop")) { daemons(2); say("ready"); kill(0, SIGSTOP); stay(); }
    if (!strcmp(verb, "hold")) { hold(words[2]); if (count < 4) stay(); }
    if (!strcmp(verb, "bomb")) bomb(number);
    if (!strcmp(verb, "spin")) spin();
    if (!strcmp(verb, "burn")) burn(words[2], atoi(words[3]), atoi(words[4]));
    if (!strcmp(verb, "sleep")) { say("ready"); stay(); }
    if (!strcmp(verb, "memory")) memory(words[2], (size_t)atoi(words[3]), count > 4 ? atoi(words[4]) : 0);
    if (!strcmp(verb, "file")) found("file", fill(open(words[2], O_CREAT | O_WRONLY, 0600), (size_t)atoi(words[3]) * MB));
    if (!strcmp(verb, "files")) many_files(words[2], atoi(words[3]));
    if (!strcmp(verb, "flood")) flood(number);
    if (!strcmp(verb, "sockets")) sockets(words[2]);
    if (!strcmp(verb, "pairs")) pairs(words[2], words[3], words[4]);
    if (!strcmp(verb, "escapes")) escapes();
    if (!strcmp(verb, "around")) files(words[2], words[3], words[4]);
    if (!strcmp(verb, "reach")) reach(count - 2, words + 2);
    if (!strcmp(verb, "descriptors")) descriptors();
    if (!strcmp(verb, "crash")) { say("ready"); raise(SIGSEGV); }
    return 0;
}
