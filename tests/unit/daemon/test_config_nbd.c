/* NBD's listeners, TLS and access lists in the config: daemon/config_nbd.c. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/check.h"
#include "core/log.h"
#include "daemon/config_nbd.h"
#include "tests/unit/daemon/tls_rig.h"

struct loaded {
    struct config *config;
    struct config_errors errors;
};

/* What is in `nbd`, where @ is the folder with the certificates. Its first line is the third. */
static struct loaded load(const struct tls_place *place, const char *nbd)
{
    char text[4096], *at = text;
    struct loaded l = {0};
    at += sprintf(at, "arrays = ( { name = \"a\"; disks = [ \"/d0\", \"/d1\" ];\n"
                      "  volumes = ( { name = \"v\"; level = \"raid1\"; } ); } );\nnbd = { ");
    for (; *nbd != '\0'; nbd++)
        at += *nbd == '@' ? sprintf(at, "%s", place->dir) : sprintf(at, "%c", *nbd);
    at += sprintf(at, " };\n");
    tls_file(place, "corbel.conf", text, (size_t)(at - text), 0600);
    l.config = config_load(tls_path(place, "corbel.conf"), &l.errors);
    return l;
}

static void unload(struct loaded *l)
{
    config_free(l->config);
    config_errors_free(&l->errors);
}

#define FILES        "certificate = \"@/server.pem\"; key = \"@/server.key\"; ca = \"@/ca.pem\"; psk = \"@/psk\";"
#define EXPORT(more) "exports = ( { name = \"v\"; volume = \"a/v\"; " more " } );"

Test(config_nbd, a_good_file_becomes_values)
{
    struct tls_place place = tls_place_make();
    struct loaded l =
        load(&place, "listen = [ \"systemd:nbd\" ]; tls = { " FILES " verify_clients = false; };\n"
                     "listeners = ( { address = \"unix:/run/x\"; tls = \"off\"; mode = \"0606\"; owner = \"root\";"
                     " group = \"0\"; }, { address = \"[::1]:5\"; } );" EXPORT(
                         "tls = \"require\"; connections = 3; access = ( { name = \"r\"; clients = [ \"cn:*\","
                         " \"psk:x\" ]; addresses = [ \"::1\" ]; read_only = true; } );"));
    cr_assert_not_null(l.config, "%s", l.errors.count > 0 ? l.errors.lines[0] : "");
    const struct config_nbd *nbd = &l.config->nbd;
    const struct config_listener *listeners = nbd->listeners.items;
    const struct config_export *export = nbd->exports.items;
    mode_t mode;
    uid_t user;
    gid_t group;
    cr_expect_eq(nbd->listeners.count, 2u);
    cr_expect_eq(config_listener_tls(nbd, ""), NBD_TLS_REQUIRE, "with files the default is to require it");
    cr_expect_eq(config_listener_tls(nbd, listeners[0].tls.text), NBD_TLS_OFF);
    cr_expect(config_mode_word(listeners[0].mode.text, &mode) && mode == 0606);
    cr_expect(config_mode_word(listeners[1].mode.text, &mode) && mode == 0660);
    cr_expect(config_user_word(listeners[0].owner.text, &user) && user == 0);
    cr_expect(config_group_word(listeners[0].group.text, &group) && group == 0);
    cr_expect(config_user_word("", &user) && user == (uid_t)-1);
    cr_expect_eq(export->access.count, 1u);
    cr_expect_eq(export->connections, 3u);
    cr_expect_not(config_tls_settings(nbd).clients_need_one);
    unload(&l);
    tls_place_drop(&place);
}

Test(config_nbd, without_files_there_is_no_tls)
{
    struct tls_place place = tls_place_make();
    struct loaded l = load(&place, "listen = [ \"127.0.0.1:0\" ]; " EXPORT(""));
    cr_assert_not_null(l.config);
    cr_expect_eq(config_listener_tls(&l.config->nbd, ""), NBD_TLS_OFF);
    cr_expect_not(config_has_tls(&l.config->nbd));
    unload(&l);
    tls_place_drop(&place);
}

static const struct {
    const char *nbd, *wrong;
    unsigned line;
} mistakes[] = {
    {"tls = { mode = \"require\"; };", "needs nbd.tls with a certificate or a psk", 3},
    {"tls = { mode = \"sometimes\"; };", "is neither off, allow nor require", 3},
    {"tls = { " FILES "\n mode = \"on\"; };", "is neither off, allow nor require", 4},
    {"tls = {\n certificate = \"@/server.pem\"; };", "needs a key", 4},
    {"tls = { psk = \"psk\"; };", "must be an absolute path", 3},
    {"tls = { psk = \"@/psk\";\n ca = \"@/ca.pem\"; };", "has no use without a certificate", 4},
    {"tls = { certificate = \"@/server.pem\";\n key = \"@/alice.key\"; };", "holds no key of the certificate", 4},
    {"tls = { certificate = \"@/server.pem\"; key = \"@/server.key\";\n\n ca = \"@/none\"; };", "cannot be read", 5},
    {"listeners = ( {\n address = \"unix:x\"; } );", "must be absolute", 4},
    {"listeners = ( { address = \"unix:/x\";\n mode = \"rw\"; } );", "is no mode of a file", 4},
    {"listeners = ( { address = \"unix:/x\"; mode = \"4755\"; } );", "is no mode of a file", 3},
    {"listeners = ( { address = \"unix:/x\"; owner = \"no such user\"; } );", "there is no user", 3},
    {"listeners = ( { address = \"unix:/x\"; group = \"no such group\"; } );", "there is no group", 3},
    {"listeners = ( { address = \"127.0.0.1:5\"; mode = \"0600\"; } );", "is no Unix socket", 3},
    {"listeners = ( { address = \"127.0.0.1:5\"; tls = \"allow\"; } );", "needs nbd.tls", 3},
    {"listen = [ \"unix:/x\" ];\n listeners = ( { address = \"unix:/x\"; } );", "\"unix:/x\" is given twice", 4},
    {"listen = [ \"systemd:\" ];", "the name of the socket is missing", 3},
    {EXPORT("tls = \"require\";"), "needs nbd.tls", 3},
    {EXPORT("tls = \"\";"), "is neither off, allow nor require", 3},
    {EXPORT("access = ( );"), "is empty: nobody could come in", 3},
    {EXPORT("access = ( { name = \"r\";\n clients = [ \"cn:x\" ]; } );"), "nobody can prove anything without nbd.tls",
     4},
    {"tls = { certificate = \"@/server.pem\"; key = \"@/server.key\"; }; " EXPORT(
         "access = ( { name = \"r\"; clients = [ \"*\" ]; } );"),
     "nobody can prove anything without nbd.tls with a ca or a psk", 3},
    {"tls = { " FILES " }; " EXPORT("access = ( { name = \"r\"; clients = [ \"alice\" ]; } );"),
     "or begin with cn:", 3},
    {EXPORT("access = ( { name = \"r\"; addresses = [ \"host\" ]; } );"), "must be an IP address", 3},
    {EXPORT("access = ( { name = \"r\"; },\n { name = \"r\"; } );"), "\"r\" is given twice", 4},
};

Test(config_nbd, mistakes_are_named_with_their_line)
{
    struct tls_place place = tls_place_make();
    for (unsigned i = 0; i < ARRAY_LENGTH(mistakes); i++) {
        char where[200];
        struct loaded l = load(&place, mistakes[i].nbd);
        cr_expect_null(l.config, "%s", mistakes[i].wrong);
        cr_assert_eq(l.errors.count, 1u, "%s: %u, %s", mistakes[i].wrong, l.errors.count,
                     l.errors.count > 0 ? l.errors.lines[0] : "");
        snprintf(where, sizeof where, "%s/corbel.conf:%u:", place.dir, mistakes[i].line);
        cr_expect_not_null(strstr(l.errors.lines[0], mistakes[i].wrong), "%s", l.errors.lines[0]);
        cr_expect_eq(strncmp(l.errors.lines[0], where, strlen(where)), 0, "%s: %s", where, l.errors.lines[0]);
        unload(&l);
    }
    tls_place_drop(&place);
}
