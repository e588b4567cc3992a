/* TransportIDs of iSCSI: see transport_id.h. */
#include "target/scsi/transport_id.h"

#include <ctype.h>
#include <string.h>

#include "core/bytes.h"
#include "core/check.h"

enum { PROTOCOL_ISCSI = 5, FORMAT_DEVICE = 0x00, FORMAT_PORT = 0x40, HEADER = 4, NAME_LEAST = 20 };

static const char isid_mark[] = ",i,0x";

static bool name_is_plain(const char *name)
{
    for (; *name != '\0'; name++)
        if ((unsigned char)*name <= ' ' || (unsigned char)*name >= 0x7f)
            return false;
    return true;
}

uint32_t transport_id_read(const uint8_t *bytes, uint32_t len, struct transport_id *out)
{
    if (len < HEADER || (bytes[0] & 0x3f) != PROTOCOL_ISCSI)
        return 0;
    uint32_t name_bytes = get_be16(bytes + 2);
    uint8_t format = bytes[0] & 0xc0;
    if (name_bytes > len - HEADER || name_bytes % 4 != 0 || (format != FORMAT_DEVICE && format != FORMAT_PORT))
        return 0;
    const char *name = (const char *)bytes + HEADER, *end = memchr(name, '\0', name_bytes);
    if (end == NULL || end == name || end - name >= PORT_NAME_BYTES || !name_is_plain(name))
        return 0;
    *out = (struct transport_id){.device = format == FORMAT_DEVICE};
    for (size_t i = 0; name + i < end; i++)
        out->name[i] = (char)tolower((unsigned char)name[i]);
    bool has_isid = strstr(out->name, isid_mark) != NULL;
    return has_isid != out->device ? HEADER + name_bytes : 0;
}

uint32_t transport_id_write(uint8_t out[TRANSPORT_ID_MAX], const char *port)
{
    size_t len = strlen(port);
    ASSERT(len < PORT_NAME_BYTES);
    uint32_t name_bytes = MAX((uint32_t)round_up(len + 1, 4), (uint32_t)NAME_LEAST);
    memset(out, 0, HEADER + name_bytes);
    out[0] = FORMAT_PORT | PROTOCOL_ISCSI;
    put_be16(out + 2, (uint16_t)name_bytes);
    memcpy(out + HEADER, port, len);
    return HEADER + name_bytes;
}

bool transport_id_covers(const struct transport_id *id, const char *port)
{
    size_t len = strlen(id->name);
    for (size_t i = 0; i < len; i++)
        if (tolower((unsigned char)port[i]) != id->name[i]) /* also at the port's end */
            return false;
    return id->device ? strncmp(port + len, isid_mark, strlen(isid_mark)) == 0 : port[len] == '\0';
}
