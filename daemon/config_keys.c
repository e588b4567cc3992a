/* Every key of the configuration, once: the parser, its defaults and its manual come from these tables. */
#include "core/check.h"
#include "core/power_combine.h"
#include "daemon/config_table.h"

#define SECONDS(n) ((n)*1000000000ull)
#define GROUP(table, type)                                                                                             \
    {                                                                                                                  \
        sizeof(type), table, ARRAY_LENGTH(table)                                                                       \
    }

#define KEY(struct_, field_, kind_, fallback_, help_)                                                                  \
    {                                                                                                                  \
        .name = #field_, .kind = kind_, .offset = offsetof(struct struct_, field_), .fallback = fallback_,             \
        .help = help_                                                                                                  \
    }
#define KEY_LIMITS(struct_, name_, field_, kind_, fallback_, min_, max_, help_)                                        \
    {                                                                                                                  \
        .name = name_, .kind = kind_, .offset = offsetof(struct struct_, field_), .fallback = fallback_, .min = min_,  \
        .max = max_, .help = help_                                                                                     \
    }
#define KEY_SUB(struct_, field_, kind_, group_, help_)                                                                 \
    {                                                                                                                  \
        .name = #field_, .kind = kind_, .offset = offsetof(struct struct_, field_), .fallback = "", .group = group_,   \
        .help = help_                                                                                                  \
    }

static const struct config_key cache_keys[] = {
    KEY_LIMITS(config_cache, "size", size, KEY_SIZE, "0 B", 0, 1ull << 40,
               "Bytes of memory, at least 64 KiB; 0 B: none."),
    KEY(config_cache, write, KEY_TEXT, "through",
        "through: writes are answered when the array has them; back: when they are in memory."),
    KEY(config_cache, protection, KEY_TEXT, "none",
        "With back: none: a flush waits until the array has it all; journal: until a log on a disk of its own has it; "
        "battery: it need not while the power source is healthy; pmem: it need not, the arena is a file on persistent "
        "memory (DAX); forced: it never waits, battery or not (a power failure loses what was answered)."),
    KEY(config_cache, when_bad, KEY_TEXT, "strict",
        "With battery, while it is not healthy: strict: each write waits until the array has it, durable, and "
        "initiators need not flush; flush: as with protection none, and initiators are told to flush."),
    KEY(config_cache, arena, KEY_TEXT, "",
        "With battery, pmem or forced: what is dirty outlives corbeld in \"memory\" that systemd keeps, in a file, or "
        "in one of its own in a folder (\"/path\"); \"none\": it does not; absent: memory with battery, else none."),
    KEY(config_cache, journal, KEY_STRINGS, "",
        "With the protection journal: the disk with its log, or two that hold the same."),
    KEY(config_cache, read_ahead, KEY_TEXT, "adaptive",
        "adaptive: what reads in sequence will ask for next, more as it proves right; always; or none."),
};
static const struct config_group cache_group = GROUP(cache_keys, struct config_cache);

static const struct config_key volume_keys[] = {
    KEY(config_volume, name, KEY_TEXT, NULL, "Name of the volume within its array."),
    KEY(config_volume, level, KEY_LEVEL, NULL,
        "jbod, span, raid0, raid1, raid10, raid1e, raid3, raid5, raid6, raidtp, raid30, raid50 or raid60."),
    KEY_LIMITS(config_volume, "size", size, KEY_SIZE, "0 B", 0, 1ull << 60, "Size offered; absent: all that is left."),
    KEY_LIMITS(config_volume, "chunk", chunk, KEY_SIZE, "0 B", 0, 16 * MIB,
               "Bytes on one disk before the next; absent: 64 KiB (raid3, raid30: 4 KiB)."),
    KEY(config_volume, rotation, KEY_ROTATION, "left-symmetric",
        "How parity goes round: left-symmetric, left-asymmetric, right-symmetric or right-asymmetric."),
    KEY_LIMITS(config_volume, "spans", spans, KEY_NUMBER, "0", 0, 32,
               "raid30, raid50, raid60: number of groups of disks; absent: 2."),
    KEY_LIMITS(config_volume, "copies", copies, KEY_NUMBER, "0", 0, 16,
               "raid10, raid1e: how often each block is kept; absent: 2."),
    KEY_LIMITS(config_volume, "slot", slot, KEY_NUMBER, "0", 0, RAID_MEMBERS_MAX - 1,
               "jbod: which disk of the array, counted from 0."),
    KEY(config_volume, consistency, KEY_POLICY, "default",
        "What keeps redundancy right over a crash: resync, bitmap, ppl or journal; default: that of its level."),
    KEY(config_volume, init, KEY_INIT, "none",
        "When it is created: none, or write zeroes to all its disks and read them back, in the background, or in the "
        "foreground: it is served when that is over."),
    KEY_LIMITS(config_volume, "priority", priority, KEY_NUMBER, "0", 0, 100,
               "Percent: how much initiators may feel of work in the background; absent: as corbelctl volume rate has "
               "said, at first 20."),
    KEY_LIMITS(config_volume, "min_rate", min_rate, KEY_SIZE, "0 B", 0, 1ull << 50,
               "With a priority: bytes a second, of all disks together, that it gets whatever initiators feel."),
    KEY_LIMITS(config_volume, "max_rate", max_rate, KEY_SIZE, "0 B", 0, 1ull << 50,
               "With a priority: bytes a second that it gets at most; 0 B: no limit."),
    KEY_SUB(config_volume, cache, KEY_GROUP, &cache_group, "A cache in memory over it."),
};
static const struct config_group volume_group = GROUP(volume_keys, struct config_volume);

static const struct config_key array_keys[] = {
    KEY(config_array, name, KEY_TEXT, NULL, "Name of the array."),
    KEY(config_array, disks, KEY_STRINGS, NULL,
        "Its disks in slot order: block devices (best by /dev/disk/by-id), files, or disks of other machines "
        "(\"nbd://host/export\", \"iscsi://host/iqn/lun\")."),
    KEY(config_array, spares, KEY_STRINGS, "", "Disks that take the place of one that is lost, for this array alone."),
    KEY(config_array, journal, KEY_STRINGS, "",
        "A disk that holds the journal instead of its disks, or two that hold the same; when the array is created."),
    KEY(config_array, scrub, KEY_TEXT, "monthly",
        "How old the last scrub of a volume may become before a patrol begins: weekly, monthly, a number of days, or "
        "off."),
    KEY_LIMITS(config_array, "journal_size", journal_size, KEY_SIZE, "0 B", 0, 16 * GIB,
               "Bytes of each disk for the journal, when the array is created; absent: 1/64 of it, 4 to 64 MiB."),
    KEY_SUB(config_array, volumes, KEY_GROUPS, &volume_group, "What is cut from it."),
};
static const struct config_group array_group = GROUP(array_keys, struct config_array);

static const struct config_key import_keys[] = {
    KEY(config_import, name, KEY_TEXT, NULL, "Name; what exports and LUNs give as their volume."),
    KEY(config_import, disks, KEY_STRINGS, NULL, "The disks of the md array, of this machine, in any order."),
};
static const struct config_group import_group = GROUP(import_keys, struct config_import);

static const struct config_key client_keys[] = {
    KEY(config_client, name, KEY_TEXT, NULL, "Name of the rule."),
    KEY(config_client, clients, KEY_STRINGS, "",
        "What they prove by TLS: \"cn:*.example.org\", \"dns:\", \"email:\", \"uri:\", \"ip:\" of a certificate, "
        "\"psk:NAME\", \"*\"; absent: nothing."),
    KEY(config_client, addresses, KEY_STRINGS, "",
        "Where they may be: \"192.0.2.0/24\", \"2001:db8::/32\", \"192.0.2.7\"; absent: anywhere."),
    KEY(config_client, read_only, KEY_BOOL, "false", "Refuse their writes."),
};
static const struct config_group client_group = GROUP(client_keys, struct config_client);

static const struct config_key listener_keys[] = {
    KEY(config_listener, address, KEY_TEXT, NULL, "As one of listen."),
    KEY(config_listener, tls, KEY_TEXT, "", "off, allow or require; absent: as nbd.tls.mode."),
    KEY(config_listener, mode, KEY_TEXT, "0660", "Of a Unix socket's file."),
    KEY(config_listener, owner, KEY_TEXT, "", "Of a Unix socket's file; absent: the user corbeld runs as."),
    KEY(config_listener, group, KEY_TEXT, "", "Of a Unix socket's file; absent: that of corbeld."),
};
static const struct config_group listener_group = GROUP(listener_keys, struct config_listener);

static const struct config_key tls_keys[] = {
    KEY(config_tls, mode, KEY_TEXT, "",
        "off, allow (as the client likes) or require; absent: require if there is a certificate or a psk, else off."),
    KEY(config_tls, certificate, KEY_TEXT, "", "PEM file: the server's certificate and what is between it and its CA."),
    KEY(config_tls, key, KEY_TEXT, "", "PEM file: its key, readable by its owner only."),
    KEY(config_tls, ca, KEY_TEXT, "",
        "PEM file: who signs the certificates of clients; absent: they are not asked for one."),
    KEY(config_tls, verify_clients, KEY_BOOL, "true", "With a ca: who shows no certificate does not come in."),
    KEY(config_tls, revoked, KEY_TEXT, "", "With a ca: PEM file with its lists of revoked certificates."),
    KEY(config_tls, psk, KEY_TEXT, "",
        "File of keys shared with clients, lines of NAME:HEX, readable by its owner only."),
};
static const struct config_group tls_group = GROUP(tls_keys, struct config_tls);

static const struct config_key export_keys[] = {
    KEY(config_export, name, KEY_TEXT, NULL, "Name clients ask for; \"\" is the default export."),
    KEY(config_export, volume, KEY_TEXT, NULL, "\"array/volume\", or the name of an import."),
    KEY(config_export, description, KEY_TEXT, "", "Text shown in listings."),
    KEY(config_export, read_only, KEY_BOOL, "false", "Refuse writes."),
    KEY(config_export, hidden, KEY_BOOL, "false", "Not shown in listings."),
    KEY(config_export, tls, KEY_TEXT, "allow",
        "off: never over TLS; allow: as the listener says; require: over TLS only."),
    KEY_LIMITS(config_export, "connections", connections, KEY_NUMBER, "0", 0, 65536, "At once; 0: as nbd.connections."),
    KEY_SUB(config_export, access, KEY_GROUPS, &client_group, "Who may use it; absent: everybody."),
};
static const struct config_group export_group = GROUP(export_keys, struct config_export);

static const struct config_key lun_keys[] = {
    KEY_LIMITS(config_lun, "lun", lun, KEY_NUMBER, NULL, 0, 255, "Logical unit number."),
    KEY(config_lun, volume, KEY_TEXT, NULL, "\"array/volume\", or the name of an import."),
    KEY(config_lun, read_only, KEY_BOOL, "false", "Refuse writes."),
    KEY(config_lun, hide_physical, KEY_BOOL, "false",
        "Do not tell that blocks are larger beneath (512e): for initiators that refuse such disks."),
    KEY(config_lun, removable, KEY_BOOL, "false",
        "Initiators may eject it, for all of them, until one loads it again; the volume stays as it is."),
    KEY_LIMITS(config_lun, "sanitize_rate", sanitize_rate, KEY_SIZE, "0 B", 0, 1ull << 50,
               "Bytes a second that a SANITIZE of an initiator writes at most; 0 B: no limit."),
    KEY_LIMITS(
        config_lun, "soft_threshold", soft_threshold, KEY_NUMBER, "0", 0, 100,
        "Percent of the volume in use at which initiators are told, once (38/07), and a warning is logged; 0: never."),
};
static const struct config_group lun_group = GROUP(lun_keys, struct config_lun);

static const struct config_key access_keys[] = {
    KEY(config_access, name, KEY_TEXT, NULL, "Name of the rule, for the log."),
    KEY(config_access, initiators, KEY_STRINGS, "",
        "Initiator names it speaks for; * is any text, ? any character; absent: all."),
    KEY(config_access, addresses, KEY_STRINGS, "",
        "Where they may be: \"192.0.2.0/24\", \"2001:db8::/32\", \"192.0.2.7\"; absent: anywhere."),
    KEY(config_access, user, KEY_TEXT, "",
        "They must authenticate themselves by CHAP as this user; absent: not at all."),
    KEY(config_access, secret_file, KEY_TEXT, "",
        "With a user: the file with its secret, one line, readable by its owner only."),
    KEY(config_access, target_user, KEY_TEXT, "", "Whom the target authenticates itself as to those who ask for it."),
    KEY(config_access, target_secret_file, KEY_TEXT, "", "With a target_user: the file with that secret."),
    KEY(config_access, read_only, KEY_BOOL, "false", "Refuse their writes."),
    KEY_SUB(config_access, luns, KEY_GROUPS, &lun_group,
            "What they see: volumes of the target's luns, under these numbers; absent: all as it is."),
};
static const struct config_group access_group = GROUP(access_keys, struct config_access);

static const struct config_key target_keys[] = {
    KEY(config_target, name, KEY_TEXT, NULL, "iSCSI name: iqn.YYYY-MM.reversed.domain:anything, eui. or naa."),
    KEY(config_target, alias, KEY_TEXT, "", "Text for people."),
    KEY(config_target, redirect, KEY_TEXT, "",
        "Send logins to this address instead, \"192.0.2.1:3260\" or \"[2001:db8::1]:3260\"."),
    KEY(config_target, redirect_permanent, KEY_BOOL, "false", "Say that it is for good."),
    KEY_LIMITS(config_target, "portal_groups", portal_groups, KEY_NUMBERS, "", 1, 65535,
               "Tags of the portal groups where it is served; absent: all."),
    KEY_SUB(config_target, luns, KEY_GROUPS, &lun_group, "Its logical units."),
    KEY_SUB(config_target, access, KEY_GROUPS, &access_group, "Who may use it; absent: everybody."),
};
static const struct config_group target_group = GROUP(target_keys, struct config_target);

static const struct config_key portal_group_keys[] = {
    KEY_LIMITS(config_portal_group, "tag", tag, KEY_NUMBER, NULL, 2, 65535,
               "Its number; 1 is the group of iscsi.listen and iscsi.portals."),
    KEY(config_portal_group, listen, KEY_STRINGS, "", "Its addresses, as iscsi.listen."),
    KEY(config_portal_group, portals, KEY_STRINGS, "", "Further addresses of it told to initiators in discovery."),
};
static const struct config_group portal_group_group = GROUP(portal_group_keys, struct config_portal_group);

static const struct config_key daemon_keys[] = {
    KEY(config_daemon, control, KEY_TEXT, "/run/corbel/control.sock", "Unix socket for corbelctl."),
    KEY(config_daemon, log, KEY_TEXT, "notice", "error, warning, notice, info or debug."),
    KEY(config_daemon, io, KEY_TEXT, "auto", "Disk engine: auto, or threads where io_uring must not be used."),
    KEY_LIMITS(config_daemon, "reactors", reactors, KEY_NUMBER, "1", 1, 64,
               "Data threads; arrays are spread over them."),
    KEY_LIMITS(config_daemon, "memory", memory, KEY_SIZE, "256 MiB", 48 * MIB, 1ull << 40,
               "Pages for data under way, for each reactor."),
    KEY_LIMITS(config_daemon, "drain", drain_ns, KEY_DURATION, "10 s", 0, SECONDS(3600),
               "At stop: time for connections to finish."),
};
static const struct config_group daemon_group = GROUP(daemon_keys, struct config_daemon);

static const struct config_key nbd_keys[] = {
    KEY(config_nbd, listen, KEY_STRINGS, "",
        "Addresses: \"127.0.0.1:10809\", \"[::1]:10809\", \"*:10809\", \"unix:/path\", \"systemd:NAME\"."),
    KEY_SUB(config_nbd, listeners, KEY_GROUPS, &listener_group,
            "Addresses with a mode of TLS, or a Unix socket's mode, of their own."),
    KEY_SUB(config_nbd, tls, KEY_GROUP, &tls_group, "TLS."),
    KEY_LIMITS(config_nbd, "connections", connections, KEY_NUMBER, "256", 1, 65536,
               "At once, that chose their export."),
    KEY_LIMITS(config_nbd, "half_open", half_open, KEY_NUMBER, "512", 1, 65536,
               "Besides them: connections that negotiate."),
    KEY_LIMITS(config_nbd, "half_open_per_address", half_open_per_address, KEY_NUMBER, "128", 1, 65536,
               "Of these, from one address."),
    KEY_LIMITS(config_nbd, "requests", requests, KEY_NUMBER, "128", 1, 4096, "In flight for each connection."),
    KEY_LIMITS(config_nbd, "negotiation", negotiation_ns, KEY_DURATION, "10 s", SECONDS(1), SECONDS(3600),
               "Time a client has to choose its export."),
    KEY_SUB(config_nbd, exports, KEY_GROUPS, &export_group, "What is served."),
};
static const struct config_group nbd_group = GROUP(nbd_keys, struct config_nbd);

static const struct config_key iscsi_keys[] = {
    KEY(config_iscsi, listen, KEY_STRINGS, "", "Addresses, as for nbd but for Unix sockets; port 3260 is usual."),
    KEY(config_iscsi, portals, KEY_STRINGS, "", "Further addresses told to initiators in discovery."),
    KEY_LIMITS(config_iscsi, "connections", connections, KEY_NUMBER, "256", 1, 65536, "Sessions at once."),
    KEY_LIMITS(config_iscsi, "half_open", half_open, KEY_NUMBER, "512", 1, 65536,
               "Besides them: connections whose login is not over."),
    KEY_LIMITS(config_iscsi, "half_open_per_address", half_open_per_address, KEY_NUMBER, "128", 1, 65536,
               "Of these, from one address."),
    KEY_LIMITS(config_iscsi, "commands", commands, KEY_NUMBER, "128", 1, 1024, "In flight for each session."),
    KEY_LIMITS(config_iscsi, "login", login_ns, KEY_DURATION, "15 s", SECONDS(1), SECONDS(3600), "Time to log in."),
    KEY_LIMITS(config_iscsi, "ping_interval", ping_interval_ns, KEY_DURATION, "30 s", 0, SECONDS(3600),
               "Silence before the initiator is pinged; 0 s: never."),
    KEY_LIMITS(config_iscsi, "ping_timeout", ping_timeout_ns, KEY_DURATION, "30 s", SECONDS(1), SECONDS(3600),
               "Time for the answer before the connection is dropped."),
    KEY(config_iscsi, short_secrets, KEY_BOOL, "false", "Take secrets of fewer than 12 bytes; RFC 7143 forbids it."),
    KEY_SUB(config_iscsi, portal_groups, KEY_GROUPS, &portal_group_group,
            "Further groups of portals, for targets that shall not be served at all of them."),
    KEY_SUB(
        config_iscsi, discovery, KEY_GROUPS, &access_group,
        "Who may ask which targets there are, as access of a target; absent: everybody. Each is told what it may use."),
    KEY_SUB(config_iscsi, targets, KEY_GROUPS, &target_group, "What is served."),
};
static const struct config_group iscsi_group = GROUP(iscsi_keys, struct config_iscsi);

static const struct config_key web_keys[] = {
    KEY(config_web, listen, KEY_STRINGS, "",
        "Addresses of the read-only status page; it has no login: keep it on loopback."),
};
static const struct config_group web_group = GROUP(web_keys, struct config_web);

static const struct config_key power_keys[] = {
    {.name = "source",
     .kind = KEY_STRINGS,
     .offset = offsetof(struct config_power, source),
     .fallback = "",
     .alone = true,
     .help =
         "\"nut://UPS@HOST:PORT\" (NUT's upsd), \"sysfs\" (the machine's own batteries) or \"command:/PATH WORD...\"; "
         "absent: none; of several power supplies: a list."},
    KEY_LIMITS(config_power, "needed", needed, KEY_NUMBER, "0", 0, POWER_SOURCES_MAX,
               "Of several sources: how many must feed the machine; 0: all."),
    KEY(config_power, user, KEY_TEXT, "", "With nut: log in as this user, so that upsd counts this machine."),
    KEY(config_power, password_file, KEY_TEXT, "",
        "With a user: the file with its password, one line, readable by its owner only."),
    KEY_LIMITS(config_power, "poll", poll_ns, KEY_DURATION, "2 s", SECONDS(1) / 10, SECONDS(60),
               "How often the source is asked."),
    KEY_LIMITS(config_power, "charge_min", charge_min, KEY_NUMBER, "30", 0, 100,
               "Percent of charge below which no battery is believed in; 0: the charge need not be known."),
    KEY_LIMITS(config_power, "charge_ok", charge_ok, KEY_NUMBER, "60", 0, 100,
               "Percent of charge from which on it is believed in again."),
    KEY_LIMITS(config_power, "charge_low", charge_low, KEY_NUMBER, "10", 0, 100,
               "On battery: percent of charge at which it is time to shut down; 0: only the source says when."),
    KEY_LIMITS(config_power, "runtime_min", runtime_min_ns, KEY_DURATION, "2 min", 0, SECONDS(86400),
               "Time that the battery must last; on battery: less than this is the time to shut down. 0 s: it need not "
               "be known."),
    KEY_LIMITS(config_power, "runtime_assumed", runtime_assumed_ns, KEY_DURATION, "0 s", 0, SECONDS(86400),
               "Time that a full battery lasts, where the source does not tell it; 0 s: unknown."),
    KEY_LIMITS(config_power, "silence_max", silence_max_ns, KEY_DURATION, "30 s", SECONDS(1), SECONDS(3600),
               "How long the source may be silent."),
    KEY_LIMITS(config_power, "settle", settle_ns, KEY_DURATION, "5 min", 0, SECONDS(86400),
               "How long all must be well before a battery is believed in again."),
    KEY(config_power, on_low, KEY_TEXT, "",
        "Command that shuts the machine down, run when the battery is low, or lasts no longer than what is dirty and "
        "shutdown_time need: \"/sbin/poweroff\"; absent: none."),
    KEY_LIMITS(config_power, "shutdown_time", shutdown_time_ns, KEY_DURATION, "60 s", 0, SECONDS(3600),
               "What the machine needs to stop, once it is told to: kept free of the battery's time."),
};
static const struct config_group power_group = GROUP(power_keys, struct config_power);

static const struct config_key root_keys[] = {
    KEY_SUB(config, daemon, KEY_GROUP, &daemon_group, "The process."),
    KEY(config, disks, KEY_STRINGS, "", "Where else to look for members; shell patterns allowed."),
    KEY(config, spares, KEY_STRINGS, "", "Disks that take the place of one that is lost, in whichever array."),
    KEY_SUB(config, arrays, KEY_GROUPS, &array_group, "What shall be. Nothing is created before corbelctl apply."),
    KEY_SUB(config, imports, KEY_GROUPS, &import_group,
            "Arrays of Linux md that are read where they are; nothing is written to their disks."),
    KEY_SUB(config, nbd, KEY_GROUP, &nbd_group, "NBD."),
    KEY_SUB(config, iscsi, KEY_GROUP, &iscsi_group, "iSCSI."),
    KEY_SUB(config, web, KEY_GROUP, &web_group, "The status page."),
    KEY_SUB(config, power, KEY_GROUP, &power_group, "Who says whether a battery stands behind this machine."),
};
const struct config_group config_root = GROUP(root_keys, struct config);
