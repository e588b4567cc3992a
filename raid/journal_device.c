/*
 * See raid/journal_device.h. The label, little-endian: magic (16 bytes), version (4 bytes: 1), 4 bytes of zero, array
 * UUID (16), device UUID (16), generation (8), name of the array (64), zeroes, CRC32C of all before it (the last 4).
 */
#include "raid/journal_device.h"

#include <errno.h>
#include <string.h>

#include "core/bytes.h"
#include "core/crc32c.h"
#include "core/log.h"
#include "raid/array_impl.h"

enum {
    VERSION_AT = 16,
    ARRAY_AT = 24,
    DEVICE_AT = 40,
    GENERATION_AT = 56,
    NAME_AT = 64,
    CRC_AT = JOURNAL_LABEL_BYTES - 4,
    VERSION = 1
};

static const char magic[16] = "Corbel log disk";

/* --- the label --- */

void journal_label_encode(const struct journal_label *label, uint8_t out[JOURNAL_LABEL_BYTES])
{
    memset(out, 0, JOURNAL_LABEL_BYTES);
    memcpy(out, magic, sizeof magic);
    put_le32(out + VERSION_AT, VERSION);
    memcpy(out + ARRAY_AT, label->array.bytes, sizeof label->array.bytes);
    memcpy(out + DEVICE_AT, label->device.bytes, sizeof label->device.bytes);
    put_le64(out + GENERATION_AT, label->generation);
    memcpy(out + NAME_AT, label->name, strnlen(label->name, SB_NAME_SIZE - 1));
    put_le32(out + CRC_AT, crc32c(0, out, CRC_AT));
}

bool journal_label_decode(const uint8_t bytes[JOURNAL_LABEL_BYTES], struct journal_label *label)
{
    *label = (struct journal_label){0};
    if (memcmp(bytes, magic, sizeof magic) != 0 || get_le32(bytes + VERSION_AT) != VERSION ||
        get_le32(bytes + CRC_AT) != crc32c(0, bytes, CRC_AT))
        return false;
    memcpy(label->array.bytes, bytes + ARRAY_AT, sizeof label->array.bytes);
    memcpy(label->device.bytes, bytes + DEVICE_AT, sizeof label->device.bytes);
    label->generation = get_le64(bytes + GENERATION_AT);
    memcpy(label->name, bytes + NAME_AT, SB_NAME_SIZE);
    return superblock_text_ok(label->name, SB_NAME_SIZE);
}

int journal_label_index(const struct sb_array *array, const struct journal_label *label)
{
    for (unsigned i = 0; i < array->journals_count; i++)
        if (uuid_equal(&label->array, &array->uuid) && uuid_equal(&label->device, &array->journals[i].uuid))
            return (int)i;
    return -1;
}

/* --- doubt --- */

bool journal_is_doubtful(const struct sb_array *a)
{
    for (unsigned i = 0; i < a->journals_count; i++)
        if (a->journals[i].state == SB_JOURNAL_DOUBTFUL)
            return true;
    return false;
}

void journal_doubt_over(struct sb_array *a)
{
    for (unsigned i = 0; i < a->journals_count; i++)
        if (a->journals[i].state == SB_JOURNAL_DOUBTFUL)
            a->journals[i].state = SB_JOURNAL_LOST;
}

/* --- opening --- */

static const char *fault_of(const struct sb_journal_device *device, const struct array_disk *disk)
{
    if (disk == NULL || disk->dev == NULL)
        return "is not there";
    if (disk->dev->info.read_only)
        return "is read-only";
    return disk->dev->info.size < device->start + device->bytes ? "has shrunk" : NULL;
}

static void states_set(struct array *array, enum sb_journal_state state)
{
    for (unsigned i = 0; i < array->description.journals_count; i++) {
        struct sb_journal_device *device = &array->description.journals[i];
        if (device->state == SB_JOURNAL_ACTIVE && !array->journals[i].live)
            device->state = state;
    }
}

/* None of those that are needed is there. */
static int open_without(struct array *array, const char *name, const char *fault, bool force, char *why, size_t why_len)
{
    struct sb_array *a = &array->description;
    bool needed = array_must_replay(array);
    if (needed && !force) {
        text_format(why, why_len,
                    "array %s was not stopped cleanly, and its journal device %s %s: bring it back, or start with "
                    "apply --force, and blocks that were being written may be wrong",
                    a->name, name, fault);
        return -EAGAIN;
    }
    states_set(array, needed ? SB_JOURNAL_DOUBTFUL : SB_JOURNAL_LOST);
    array->journal_given_up = needed;
    log_warn("array %s: journal device lost: on the members now (%s %s)", a->name, name, fault);
    if (needed)
        log_error("array %s: started by force without its journal: blocks that were being written when it stopped may "
                  "be wrong, above all where a disk is missing; all rows that were ever written are resynchronised",
                  a->name);
    return 0;
}

int journal_devices_open(struct array *array, const struct array_journals *given, char *why, size_t why_len)
{
    struct sb_array *a = &array->description;
    const char *fault = NULL, *name = NULL;
    for (unsigned i = 0; i < a->journals_count; i++) {
        struct sb_journal_device *device = &a->journals[i];
        const struct array_disk *disk = given != NULL ? &given->disks[i] : NULL;
        if (device->state != SB_JOURNAL_ACTIVE)
            continue;
        const char *wrong = fault_of(device, disk);
        if (wrong != NULL) {
            name = device->identity;
            fault = wrong;
            continue;
        }
        ASSERT(disk->dev->loop == array->loop);
        array->journals[i] = (struct journal_device){.dev = disk->dev, .live = true};
        text_format(device->identity, sizeof device->identity, "%s", disk->identity);
    }
    if (fault == NULL)
        return 0;
    if (journal_devices_live(array) == 0)
        return open_without(array, name, fault, given != NULL && given->force, why, why_len);
    states_set(array, SB_JOURNAL_LOST);
    log_warn("array %s: journal device %s %s: the other one goes on alone", a->name, name, fault);
    return 0;
}

/* --- losing --- */

unsigned journal_devices_live(const struct array *array)
{
    unsigned live = 0;
    for (unsigned i = 0; i < array->description.journals_count; i++)
        live += array->journals[i].live;
    return live;
}

const char *journal_device_name(const struct array *array, const struct journal_device *device)
{
    return array->description.journals[device - array->journals].identity;
}

/* As the loss of a member: nobody acts upon it before it is on disk. */
static void record(struct array *array)
{
    states_set(array, SB_JOURNAL_LOST);
    array->losses.generation = array->description.generation + 1;
    array_commit(array, NULL);
}

void journal_device_lose(struct array *array, struct journal_device *device, enum blk_status status)
{
    const char *name = journal_device_name(array, device);
    if (!device->live || array->frozen)
        return;
    device->live = false;
    bool other = journal_devices_live(array) > 0;
    log_error("array %s: journal device %s failed (%s): %s", array->description.name, name, blk_status_name(status),
              other ? "the other one goes on alone; replace it" : "it was the last one");
    if (other)
        record(array);
}

void journal_devices_give_up(struct array *array)
{
    log_error("array %s: journal device lost: on the members now", array->description.name);
    array_epoch_begin(array);
    record(array);
}
