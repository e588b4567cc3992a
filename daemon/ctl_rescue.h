/*
 * corbelctl rescue: the commands that read volumes on a Linux without Corbel.
 *
 * What is printed is a script for sh: losetup for the part of each member that belongs to the volume, then
 * device-mapper or md devices over these, and at last /dev/mapper/corbel-ARRAY-VOLUME of the volume's exact size.
 * Members are only ever opened for reading. It needs no daemon: the description is read from the disks themselves.
 *
 *   ctl_rescue.c         finds the labels on the disks and which disks make which array
 *   ctl_rescue_volume.c  prints the commands of one volume
 */
#ifndef DAEMON_CTL_RESCUE_H
#define DAEMON_CTL_RESCUE_H

#include <stdbool.h>
#include <stdio.h>

#include "raid/superblock.h"

/*
 * Print the commands for every volume of every array found on these disks. `force` takes the winner of a split brain.
 * False: something could not be read; the script says what and why, and so does standard error.
 */
bool rescue_print(const char *const *disks, unsigned count, bool force, FILE *out);

/*
 * One volume. paths[slot] is the disk of the array's slot, NULL if it is missing; `number` tells the script's volumes
 * apart. False: it cannot be read this way, and a comment says why.
 */
bool rescue_print_volume(const struct sb_array *array, const struct sb_volume *volume, const char *const *paths,
                         unsigned number, FILE *out);

/* A comment line of the script; what could end the line is replaced. */
void rescue_comment(FILE *out, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
