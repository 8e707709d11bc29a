// The functions of the default system that are not in linux.c; only the base layer includes this header. What each
// does is said at its slot in system.h.
#ifndef MU_SRC_BASE_LINUX_H
#define MU_SRC_BASE_LINUX_H

#include "base/system.h"

// linux_socket.c
int mu__linux_listen(const mu_endpoint *at, bool both_families);
int mu__linux_accept(int listener);
int mu__linux_connect(const mu_endpoint *to, const mu_endpoints *own);
int mu__linux_connect_result(int fd);
bool mu__linux_endpoint(int fd, bool there, mu_endpoint *out);
void mu__linux_settle(int fd, double seconds);
ssize_t mu__linux_send(int fd, const struct iovec *extents, int n);
ssize_t mu__linux_recv(int fd, void *data, size_t bytes);
void mu__linux_end_output(int fd);
bool mu__linux_all_received(int fd);
bool mu__linux_wait(int fd, short events, int64_t deadline_ns);

// port_holder.c
void mu__linux_port_holder(int port, char *text, size_t bytes);

// host_lookup.c
mu_lookup *mu__linux_lookup_start(const char *host, int port);
bool mu__linux_lookup_done(const mu_lookup *lookup, mu_endpoints *out, const char **reason);
void mu__linux_lookup_drop(mu_lookup *lookup);

// file.c
mu_status mu__linux_read_file(const char *path, size_t limit, void **data, size_t *bytes);

#endif
