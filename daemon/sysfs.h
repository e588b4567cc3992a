/* The few attributes of block devices that Corbel reads from /sys. Each returns false, and "" in out, if there is none.
 */
#ifndef DAEMON_SYSFS_H
#define DAEMON_SYSFS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* /sys/dev/block/MAJOR:MINOR/`name`, without white space at its ends. */
bool sysfs_read(dev_t dev, const char *name, char *out, size_t len);
/* The same of the queue, or of the whole disk: a partition has neither queue nor serial of its own. */
bool sysfs_read_queue(dev_t dev, const char *name, char *out, size_t len);
bool sysfs_read_disk(dev_t dev, const char *name, char *out, size_t len);

#endif
