/* See daemon/config_power.h. */
#include "daemon/config_power.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "core/check.h"
#include "core/log.h"
#include "core/power_combine.h"
#include "daemon/command.h"
#include "daemon/config_table.h"
#include "daemon/power_upsd.h"

#define report(line, setting, ...) config_error(errors, config->path, line, setting, __VA_ARGS__)

#define POWER_SUPPLIES "/sys/class/power_supply"

static bool wrong(char *why, size_t why_len, const char *what)
{
    text_format(why, why_len, "%s", what);
    return false;
}

static bool host_valid(const char *host)
{
    struct in6_addr address;
    return inet_pton(AF_INET, host, &address) == 1 || inet_pton(AF_INET6, host, &address) == 1;
}

/* HOST[:PORT], with brackets around an IPv6 address. */
static bool parse_host(const char *text, struct power_source_spec *out)
{
    const char *end = *text == '[' ? strchr(text, ']') : text + strcspn(text, ":");
    unsigned long port = UPSD_PORT;
    char *rest;
    if (end == NULL)
        return false;
    text += *text == '[';
    text_format(out->host, sizeof out->host, "%.*s", (int)(end - text), text);
    end += *end == ']';
    if (*end == ':') {
        port = isdigit((unsigned char)end[1]) ? strtoul(end + 1, &rest, 10) : 0;
        if (port == 0 || port > 65535 || *rest != '\0')
            return false;
    } else if (*end != '\0') {
        return false;
    }
    out->port = (uint16_t)port;
    if (strcmp(out->host, "localhost") == 0)
        text_format(out->host, sizeof out->host, "127.0.0.1");
    return host_valid(out->host);
}

static bool parse_nut(const char *text, struct power_source_spec *out, char *why, size_t why_len)
{
    const char *at = strchr(text, '@');
    size_t len = at != NULL ? (size_t)(at - text) : 0;
    if (len == 0 || len > UPSD_NAME_MAX)
        return wrong(why, why_len, "must be nut://UPS@HOST[:PORT]");
    for (size_t i = 0; i < len; i++)
        if (!isalnum((unsigned char)text[i]) && strchr("-_.", text[i]) == NULL)
            return wrong(why, why_len, "has a name of a UPS that cannot be: letters, digits, '-', '_' and '.' only");
    text_format(out->ups, sizeof out->ups, "%.*s", (int)len, text);
    if (parse_host(at + 1, out))
        return true;
    return wrong(
        why, why_len,
        "must have behind the @ an IP address (IPv6 in brackets) or localhost, and maybe a port: names are not "
        "looked up");
}

bool power_source_parse(const char *text, struct power_source_spec *out, char *why, size_t why_len)
{
    *out = (struct power_source_spec){.kind = POWER_SOURCE_NONE};
    if (*text == '\0')
        return true;
    if (strlen(text) > CONFIG_PATH_MAX)
        return wrong(why, why_len, "is too long");
    if (strncmp(text, "nut://", 6) == 0) {
        out->kind = POWER_SOURCE_NUT;
        return parse_nut(text + 6, out, why, why_len);
    }
    if (strcmp(text, "sysfs") == 0 || strncmp(text, "sysfs:", 6) == 0) {
        out->kind = POWER_SOURCE_SYSFS;
        text_format(out->text, sizeof out->text, "%s", text[5] == ':' ? text + 6 : POWER_SUPPLIES);
        return out->text[0] == '/' || wrong(why, why_len, "must have an absolute path behind sysfs:");
    }
    if (strncmp(text, "command:", 8) == 0) {
        out->kind = POWER_SOURCE_COMMAND;
        text_format(out->text, sizeof out->text, "%s", text + 8);
        return command_valid(out->text) ||
               wrong(why, why_len, "must have an absolute path behind command:, and each quote must end");
    }
    return wrong(why, why_len, "must begin with nut://, or be sysfs or command:PATH");
}

struct power_limits config_power_limits(const struct config_power *config)
{
    return (struct power_limits){.charge_min = (uint32_t)config->charge_min,
                                 .charge_ok = (uint32_t)config->charge_ok,
                                 .charge_low = (uint32_t)config->charge_low,
                                 .runtime_min_s = config->runtime_min_ns / 1000000000,
                                 .runtime_assumed_s = config->runtime_assumed_ns / 1000000000,
                                 .silence_max_ns = config->silence_max_ns,
                                 .settle_ns = config->settle_ns};
}

unsigned config_power_sources(const struct config_power *config)
{
    return config->source.count;
}

unsigned config_power_needed(const struct config_power *config)
{
    return config->needed != 0 ? (unsigned)config->needed : config_power_sources(config);
}

static void check_login(const struct config *config, bool nut, struct config_errors *errors)
{
    const struct config_text *user = &config->power.user, *file = &config->power.password_file;
    if ((*user->text != '\0' || *file->text != '\0') && !nut)
        report(MAX(user->line, file->line), *user->text != '\0' ? "user" : "password_file",
               "only a source of nut:// has a login");
    else if (*user->text != '\0' && *file->text == '\0')
        report(user->line, "user", "\"%s\" needs a password_file", user->text);
    else if (*user->text == '\0' && *file->text != '\0')
        report(file->line, "password_file", "needs a user");
    else if (*file->text != '\0' && *file->text != '/')
        report(file->line, "password_file", "\"%s\" must be an absolute path", file->text);
    if (strlen(user->text) > UPSD_NAME_MAX)
        report(user->line, "user", "is longer than %d bytes", UPSD_NAME_MAX);
}

/* False: there is something wrong with them. *nut: one of them is a UPS of upsd. */
static bool check_sources(const struct config *config, bool *nut, struct config_errors *errors)
{
    const struct config_strings *sources = &config->power.source;
    unsigned before = errors->count;
    for (unsigned i = 0; i < sources->count; i++) {
        struct power_source_spec spec = {.kind = POWER_SOURCE_NONE};
        const struct config_text *text = &sources->items[i];
        char why[200] = "is empty";
        if (*text->text == '\0' || !power_source_parse(text->text, &spec, why, sizeof why))
            report(text->line, "source", "\"%s\" %s", text->text, why);
        for (unsigned j = 0; j < i; j++)
            if (strcmp(text->text, sources->items[j].text) == 0)
                report(text->line, "source", "\"%s\" is there twice", text->text);
        *nut = *nut || spec.kind == POWER_SOURCE_NUT;
    }
    if (sources->count > POWER_SOURCES_MAX)
        report(sources->items[0].line, "source", "there are more than %d", POWER_SOURCES_MAX);
    if (config->power.needed > MAX(sources->count, 1u))
        report(config->power.line, "needed", "%u of %u sources", (unsigned)config->power.needed, sources->count);
    return errors->count == before;
}

void config_check_power(const struct config *config, struct config_errors *errors)
{
    const struct config_power *power = &config->power;
    bool nut = false;
    if (!check_sources(config, &nut, errors))
        return;
    check_login(config, nut, errors);
    if (power->charge_ok < power->charge_min)
        report(power->line, "charge_ok", "%u is below charge_min, %u", (unsigned)power->charge_ok,
               (unsigned)power->charge_min);
    if (power->silence_max_ns < 2 * power->poll_ns)
        report(power->line, "silence_max", "must be twice poll or more: one answer may be late");
    if (*power->on_low.text != '\0' && !command_valid(power->on_low.text))
        report(power->on_low.line, "on_low", "\"%s\" must begin with an absolute path, and each quote must end",
               power->on_low.text);
}
