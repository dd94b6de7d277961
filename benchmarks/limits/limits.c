/* The least work a broker can do for a message: a loop that takes the frames of benchmarks/loadgen from its sockets.
 *
 * For a send it writes the received bytes to a file and responds; with `sync`, after one fdatasync for everything that
 * one pass over the sockets has brought. For a pull it writes 32 records from a mapped file to the socket. It looks at
 * nothing but lengths, the request code and the opaque, stores no queue and no index, and checks nothing: what it costs
 * is the kernel's part and the copies, which no broker can save. Binary headers only.
 *
 * limits PORT FILE RECORD_BYTES [sync]
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

enum {
    PULL_MESSAGE = 11,
    PULLED = 32,
    HEAD = 21,           /* of a header without remark and fields */
    BUFFER = 4 << 20,    /* received and unfinished bytes of a connection */
    RESPONSES = 1 << 20, /* responses of a burst */
    CONNECTIONS = 4096,
    LOG = 1 << 30 /* the mapped file that pulls read */
};

struct connection {
    unsigned char *in;
    size_t in_bytes;
    unsigned char *out;
    size_t out_bytes;
};

static struct connection connections[CONNECTIONS];
static int log_fd;
static off_t log_end;
static unsigned char *records;
static size_t record_bytes, next_record;

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static uint32_t get32(const unsigned char *at) {
    uint32_t n;
    memcpy(&n, at, 4);
    return ntohl(n);
}

static void put32(unsigned char *at, uint32_t n) {
    n = htonl(n);
    memcpy(at, &n, 4);
}

static size_t put_field(unsigned char *at, const char *name, const char *value) {
    size_t name_bytes = strlen(name), value_bytes = strlen(value);
    at[0] = 0;
    at[1] = (unsigned char)name_bytes;
    memcpy(at + 2, name, name_bytes);
    put32(at + 2 + name_bytes, (uint32_t)value_bytes);
    memcpy(at + 6 + name_bytes, value, value_bytes);
    return 6 + name_bytes + value_bytes;
}

/* Writes the lengths and the header of a successful response; `body_bytes` follow. */
static size_t put_response(unsigned char *at, const unsigned char *opaque, int is_pull, size_t body_bytes) {
    unsigned char *fields = at + 8 + HEAD;
    size_t bytes = 0;
    if (is_pull) {
        bytes += put_field(fields + bytes, "nextBeginOffset", "1000000");
        bytes += put_field(fields + bytes, "minOffset", "0");
        bytes += put_field(fields + bytes, "maxOffset", "9000000");
        bytes += put_field(fields + bytes, "suggestWhichBrokerId", "0");
    } else {
        bytes += put_field(fields + bytes, "msgId", "7F00000100002A9F00000000001A2B3C");
        bytes += put_field(fields + bytes, "queueId", "0");
        bytes += put_field(fields + bytes, "queueOffset", "1000000");
    }
    size_t head_bytes = HEAD + bytes;
    put32(at, (uint32_t)(4 + head_bytes + body_bytes));
    put32(at + 4, 1u << 24 | (uint32_t)head_bytes);
    memset(at + 8, 0, HEAD);
    memcpy(at + 8 + 5, opaque, 4);
    at[8 + 12] = 1; /* the flag of a response */
    put32(at + 8 + 17, (uint32_t)bytes);
    return 8 + head_bytes;
}

static void write_all(int fd, struct iovec *parts, int count) {
    while (count > 0) {
        ssize_t done = writev(fd, parts, count);
        if (done < 0) {
            if (errno == EINTR)
                continue;
            return; /* the peer has gone, which the next read notices */
        }
        while (count > 0 && (size_t)done >= parts->iov_len) {
            done -= (ssize_t)parts->iov_len;
            parts++, count--;
        }
        if (count > 0) {
            parts->iov_base = (char *)parts->iov_base + done;
            parts->iov_len -= (size_t)done;
        }
    }
}

static void respond_to_pull(int fd, const unsigned char *opaque) {
    unsigned char head[512];
    if ((next_record + PULLED) * record_bytes > LOG)
        next_record = 0;
    size_t body_bytes = PULLED * record_bytes;
    struct iovec parts[2] = {
        {head, put_response(head, opaque, 1, body_bytes)},
        {records + next_record * record_bytes, body_bytes},
    };
    next_record += PULLED;
    write_all(fd, parts, 2);
}

/* Handles what a socket has received; returns 0 when the connection has ended. */
static int handle(int fd) {
    struct connection *c = &connections[fd];
    ssize_t got = recv(fd, c->in + c->in_bytes, BUFFER - c->in_bytes, MSG_DONTWAIT);
    if (got <= 0)
        return got < 0 && (errno == EAGAIN || errno == EINTR);
    c->in_bytes += (size_t)got;
    size_t at = 0, stored = 0;
    while (c->in_bytes - at >= 8) {
        const unsigned char *frame = c->in + at;
        size_t bytes = 4 + (size_t)get32(frame);
        if (bytes > BUFFER)
            return 0;
        if (c->in_bytes - at < bytes)
            break;
        const unsigned char *opaque = frame + 8 + 5;
        if ((frame[8] << 8 | frame[9]) == PULL_MESSAGE) {
            respond_to_pull(fd, opaque);
        } else {
            stored = at + bytes;
            if (c->out_bytes + 512 > RESPONSES)
                return 0;
            c->out_bytes += put_response(c->out + c->out_bytes, opaque, 0, 0);
        }
        at += bytes;
    }
    if (stored > 0) {
        if (pwrite(log_fd, c->in, stored, log_end) != (ssize_t)stored)
            fail("write");
        log_end += (off_t)stored;
    }
    memmove(c->in, c->in + at, c->in_bytes - at);
    c->in_bytes -= at;
    return 1;
}

static void flush(int fd) {
    struct connection *c = &connections[fd];
    struct iovec part = {c->out, c->out_bytes};
    if (c->out_bytes > 0)
        write_all(fd, &part, 1);
    c->out_bytes = 0;
}

static void accept_one(int listener, int poll_fd) {
    int fd = accept(listener, NULL, NULL), on = 1;
    if (fd < 0 || fd >= CONNECTIONS)
        fail("accept");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    struct connection *c = &connections[fd];
    if (c->in == NULL && ((c->in = malloc(BUFFER)) == NULL || (c->out = malloc(RESPONSES)) == NULL))
        fail("malloc");
    c->in_bytes = c->out_bytes = 0;
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    if (epoll_ctl(poll_fd, EPOLL_CTL_ADD, fd, &event) < 0)
        fail("epoll_ctl");
}

static void make_records(const char *path) {
    char name[4096];
    snprintf(name, sizeof name, "%s.records", path);
    int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (fd < 0 || ftruncate(fd, LOG) < 0)
        fail(name);
    records = mmap(NULL, LOG, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (records == MAP_FAILED)
        fail("mmap");
    memset(records, 'x', LOG);
    for (size_t at = 0; at + record_bytes <= LOG; at += record_bytes)
        put32(records + at, (uint32_t)record_bytes);
    close(fd);
}

int main(int argc, char **argv) {
    if (argc < 4 || (record_bytes = (size_t)atol(argv[3])) < 91) {
        fprintf(stderr, "limits PORT FILE RECORD_BYTES [sync]\n");
        return 2;
    }
    int is_sync = argc > 4, on = 1;
    make_records(argv[2]);
    log_fd = open(argv[2], O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (log_fd < 0)
        fail(argv[2]);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(argv[1]))};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int listener = socket(AF_INET, SOCK_STREAM, 0), poll_fd = epoll_create1(0);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) < 0 || listen(listener, 1024) < 0)
        fail("listen");
    struct epoll_event events[256] = {{.events = EPOLLIN, .data.fd = listener}};
    if (epoll_ctl(poll_fd, EPOLL_CTL_ADD, listener, &events[0]) < 0)
        fail("epoll_ctl");
    for (;;) {
        int count = epoll_wait(poll_fd, events, 256, -1);
        for (int i = 0; i < count; i++) {
            int fd = events[i].data.fd;
            if (fd == listener) {
                accept_one(listener, poll_fd);
            } else if (!handle(fd)) {
                close(fd);
                events[i].data.fd = listener;
            } else if (!is_sync) {
                flush(fd);
            }
        }
        if (is_sync && count > 0 && fdatasync(log_fd) < 0)
            fail("fdatasync");
        for (int i = 0; is_sync && i < count; i++)
            if (events[i].data.fd != listener)
                flush(events[i].data.fd);
    }
}
