/* Delays or corrupts what a process sends: LD_PRELOAD, with OUTSIDE_DELAY_MS, OUTSIDE_FLIP (number of the call),
   OUTSIDE_SPIN (number of the call of connect that never ends), OUTSIDE_CLOCK (seconds by which the clock jumps, 3 s
   after the first look at it), OUTSIDE_EVENTS_MS (delay of each epoll_wait that brings events), OUTSIDE_READ (bytes that
   a read of a connection brings at most), or OUTSIDE_BROKEN (number of the read of a connection that fails with EIO). */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static int least = 2048, calls;

static void strike(void) {
    const char *path = getenv("OUTSIDE_MARK");
    int file = path ? open(path, O_WRONLY | O_CREAT | O_APPEND, 0644) : -1;
    if (file >= 0) {
        if (write(file, "send\n", 5) < 0) calls++;
        close(file);
    }
}

static int acts(size_t size) {
    const char *delay = getenv("OUTSIDE_DELAY_MS"), *flip = getenv("OUTSIDE_FLIP");
    if (size < (size_t)least) return 0;
    calls++;
    if (delay) {
        if (calls == 1) strike();
        usleep(1000 * atoi(delay));
    }
    return flip && calls == atoi(flip);
}

ssize_t writev(int file, const struct iovec *parts, int count) {
    static ssize_t (*plain)(int, const struct iovec *, int);
    size_t size = 0, last = 0;
    if (!plain) plain = dlsym(RTLD_NEXT, "writev");
    for (int i = 0; i < count; i++) {
        size += parts[i].iov_len;
        if (parts[i].iov_len >= parts[last].iov_len) last = i;
    }
    if (acts(size)) {
        struct iovec mine[count];
        char *copy = malloc(parts[last].iov_len);
        memcpy(mine, parts, sizeof mine);
        memcpy(copy, parts[last].iov_base, parts[last].iov_len);
        copy[parts[last].iov_len / 2 | 3] ^= 0x40;
        mine[last].iov_base = copy;
        strike();
        ssize_t sent = plain(file, mine, count);
        free(copy);
        return sent;
    }
    return plain(file, parts, count);
}

ssize_t sendmsg(int file, const struct msghdr *message, int flags) {
    static ssize_t (*plain)(int, const struct msghdr *, int);
    size_t size = 0;
    if (!plain) plain = dlsym(RTLD_NEXT, "sendmsg");
    for (size_t i = 0; i < message->msg_iovlen; i++) size += message->msg_iov[i].iov_len;
    acts(size);
    return plain(file, message, flags);
}

ssize_t send(int file, const void *data, size_t size, int flags) {
    static ssize_t (*plain)(int, const void *, size_t, int);
    if (!plain) plain = dlsym(RTLD_NEXT, "send");
    acts(size);
    return plain(file, data, size, flags);
}

int connect(int file, const struct sockaddr *address, socklen_t size) {
    static int (*plain)(int, const struct sockaddr *, socklen_t);
    static int connections;
    const char *spin = getenv("OUTSIDE_SPIN");
    if (!plain) plain = dlsym(RTLD_NEXT, "connect");
    if (spin && (address->sa_family == AF_INET || address->sa_family == AF_INET6) && ++connections == atoi(spin)) {
        strike();
        for (volatile long turn = 0;; turn++) {}
    }
    return plain(file, address, size);
}

static long long jump(void) {
    static struct timespec first;
    struct timespec now;
    static int struck;
    const char *seconds = getenv("OUTSIDE_CLOCK");
    if (!seconds) return 0;
    syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
    if (!first.tv_sec) first = now;
    if (now.tv_sec - first.tv_sec < 3) return 0;
    if (!struck++) strike();
    return atoll(seconds);
}

int clock_gettime(clockid_t id, struct timespec *at) {
    int failed = syscall(SYS_clock_gettime, id, at);
    if (!failed && id == CLOCK_REALTIME) at->tv_sec += jump();
    return failed;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone) {
    struct timespec exact;
    clock_gettime(CLOCK_REALTIME, &exact);
    at->tv_sec = exact.tv_sec;
    at->tv_usec = exact.tv_nsec / 1000;
    return 0;
}

int epoll_wait(int file, struct epoll_event *events, int most, int limit) {
    static int (*plain)(int, struct epoll_event *, int, int);
    static int struck;
    const char *delay = getenv("OUTSIDE_EVENTS_MS");
    if (!plain) plain = dlsym(RTLD_NEXT, "epoll_wait");
    int count = plain(file, events, most, limit);
    if (delay && count > 0) {
        if (!struck++) strike();
        usleep(1000 * atoi(delay));
    }
    return count;
}

static size_t most_read(int file, size_t size) {
    static int struck, reads;
    const char *most = getenv("OUTSIDE_READ"), *broken = getenv("OUTSIDE_BROKEN");
    struct sockaddr_in6 peer;
    socklen_t length = sizeof peer;
    if (!most && !broken) return size;
    if (getpeername(file, (struct sockaddr *)&peer, &length) || peer.sin6_family == AF_UNIX) return size;
    if (broken && ++reads == atoi(broken)) {
        strike();
        return 0;
    }
    if (!most || size <= (size_t)atoi(most)) return size;
    if (!struck++) strike();
    return atoi(most);
}

ssize_t read(int file, void *data, size_t size) {
    static ssize_t (*plain)(int, void *, size_t);
    size_t most = most_read(file, size);
    if (!plain) plain = dlsym(RTLD_NEXT, "read");
    if (most || !size) return plain(file, data, most);
    errno = EIO;
    return -1;
}

ssize_t recv(int file, void *data, size_t size, int flags) {
    static ssize_t (*plain)(int, void *, size_t, int);
    size_t most = most_read(file, size);
    if (!plain) plain = dlsym(RTLD_NEXT, "recv");
    if (most || !size) return plain(file, data, most, flags);
    errno = EIO;
    return -1;
}
