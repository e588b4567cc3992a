/* TLS over a socket's stream, and the files it needs: daemon/tls.c, tls_credentials.c, tls_psk.c, tls_proof.c. */
#include <criterion/criterion.h>
#include <openssl/err.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/bytes.h"
#include "core/check.h"
#include "core/log.h"
#include "daemon/tls_internal.h"
#include "tests/unit/daemon/tls_rig.h"
#include "tests/unit/lib/testloop.h"

/* --- an owner: tells how the handshake ended, then reads to the end, and sends what it has --- */

struct host {
    struct stream *stream;
    struct reactor *moves_to;
    size_t piece, expected; /* bytes it receives in one call; until it has so many; 0: to the end */
    const uint8_t *to_send;
    size_t send_len, sent, got, room;
    uint8_t *received;
    bool secured, over;
    ssize_t last; /* of recv or send */
    unsigned readables;
    char failure[200];
    struct task arrived;
};

static void host_over(struct host *h)
{
    h->over = true;
    stream_want(h->stream, 0);
    reactor_stop(reactor_of(h->stream->loop));
}

static void host_readable(struct stream *stream)
{
    struct host *h = stream->owner_data;
    struct iovec iov = {h->received + h->got, MIN(h->piece, h->room - h->got)};
    cr_assert(loop_is_current(stream->loop));
    h->readables++;
    h->last = stream_recv(stream, &iov, 1);
    if (h->last > 0)
        h->got += (size_t)h->last;
    if ((h->last <= 0 && h->last != STREAM_AGAIN) || (h->expected > 0 && h->got >= h->expected))
        host_over(h);
}

static void host_writable(struct stream *stream)
{
    struct host *h = stream->owner_data;
    struct iovec iov[3] = {{(void *)(uintptr_t)(h->to_send + h->sent), MIN(h->send_len - h->sent, (size_t)100)}};
    iov[1] = (struct iovec){(uint8_t *)iov[0].iov_base + iov[0].iov_len, 0};
    iov[2] = (struct iovec){(uint8_t *)iov[0].iov_base + iov[0].iov_len, h->send_len - h->sent - iov[0].iov_len};
    h->last = stream_send(stream, iov, 3);
    if (h->last > 0)
        h->sent += (size_t)h->last;
    if (h->sent == h->send_len)
        stream_want(stream, STREAM_READ);
    else if (h->last < 0 && h->last != STREAM_AGAIN)
        host_over(h);
}

static const struct stream_owner host_owner = {host_readable, host_writable};

static void host_wants(struct host *h)
{
    stream_want(h->stream, STREAM_READ | (h->send_len > 0 ? STREAM_WRITE : 0));
}

static void host_arrived(struct task *task)
{
    host_wants(container_of(task, struct host, arrived));
}

static void host_secured(struct stream *stream, const char *failure)
{
    struct host *h = stream->owner_data;
    h->secured = failure == NULL;
    text_format(h->failure, sizeof h->failure, "%s", failure != NULL ? failure : "");
    if (failure != NULL) {
        host_over(h);
    } else if (h->moves_to != NULL) {
        struct reactor *from = reactor_of(stream->loop);
        h->arrived.run = host_arrived;
        stream_move(stream, reactor_loop(h->moves_to), &h->arrived);
        reactor_stop(from);
    } else {
        host_wants(h);
    }
}

struct bench {
    struct tls_place place;
    struct stream_credentials *credentials;
    struct reactor *reactor;
};

static struct bench bench_make(void)
{
    char why[200] = "";
    struct reactor_options options = {.name = "test"};
    struct bench b = {.place = tls_place_make(), .reactor = reactor_create(&options, why, sizeof why)};
    struct tls_settings settings = tls_settings_full(&b.place);
    cr_assert_not_null(b.reactor, "%s", why);
    b.credentials = tls_credentials_of(&settings);
    return b;
}

static void bench_drop(struct bench *b)
{
    tls_credentials_free(b->credentials);
    reactor_destroy(b->reactor);
    tls_place_drop(&b->place);
    cr_expect_eq(ERR_peek_error(), 0ul, "no error is left behind: %s", ERR_reason_error_string(ERR_peek_error()));
}

/* A connection from its handshake until the host is over; the stream is left open. */
static void bench_meet(struct bench *b, struct tls_client *client, struct host *host)
{
    host->room = host->room > 0 ? host->room : 4096;
    host->piece = host->piece > 0 ? host->piece : host->room;
    host->received = malloc(host->room + 1);
    client->place = &b->place;
    host->stream = tls_client_start(client, b->reactor);
    host->stream->owner = &host_owner;
    host->stream->owner_data = host;
    cr_assert(stream_start_tls(host->stream, b->credentials, host_secured));
    reactor_run(b->reactor);
}

static void bench_part(struct tls_client *client, struct host *host)
{
    stream_close(host->stream);
    tls_client_join(client);
    free(host->received);
}

/* --- who may come in, and what he has proved --- */

static const char key[] = "000102030405060708090a0b0c0d0e0f", wrong_key[] = "ff0102030405060708090a0b0c0d0e0f";

static const struct {
    const char *what, *certificate, *psk, *psk_name;
    int version;
    const char *name;    /* the first one proved; NULL: it does not come in */
    const char *failure; /* a part of it */
} clients[] = {
    {"certificate, 1.2", "alice", NULL, NULL, TLS1_2_VERSION, "cn:alice", NULL},
    {"certificate, 1.3", "alice", NULL, NULL, TLS1_3_VERSION, "cn:alice", NULL},
    {"shared key, 1.2", NULL, key, "carol", TLS1_2_VERSION, "psk:carol", NULL},
    {"shared key, 1.3", NULL, key, "carol", TLS1_3_VERSION, "psk:carol", NULL},
    {"no certificate, 1.2", NULL, NULL, NULL, TLS1_2_VERSION, NULL, "peer did not return a certificate"},
    {"no certificate, 1.3", NULL, NULL, NULL, TLS1_3_VERSION, NULL, "peer did not return a certificate"},
    {"another CA, 1.2", "mallory", NULL, NULL, TLS1_2_VERSION, NULL, "the client's certificate: unable to get local"},
    {"another CA, 1.3", "mallory", NULL, NULL, TLS1_3_VERSION, NULL, "the client's certificate: unable to get local"},
    {"wrong key, 1.2", NULL, wrong_key, "carol", TLS1_2_VERSION, NULL, "failed"},
    {"wrong key, 1.3", NULL, wrong_key, "carol", TLS1_3_VERSION, NULL, "binder does not verify"},
    {"unknown name, 1.2", NULL, key, "dave", TLS1_2_VERSION, NULL, "failed"},
    {"unknown name, 1.3", NULL, key, "dave", TLS1_3_VERSION, NULL, "failed"},
    {"TLS 1.1", "alice", NULL, NULL, TLS1_1_VERSION, NULL, "unsupported protocol"},
    {"TLS 1.0", "alice", NULL, NULL, TLS1_VERSION, NULL, "unsupported protocol"},
};

Test(tls, who_comes_in_and_what_he_has_proved, .timeout = 60)
{
    struct bench b = bench_make();
    for (unsigned i = 0; i < ARRAY_LENGTH(clients); i++) {
        struct tls_client client = {.certificate = clients[i].certificate,
                                    .psk = clients[i].psk,
                                    .psk_name = clients[i].psk_name,
                                    .version = clients[i].version};
        struct host host = {0};
        bench_meet(&b, &client, &host);
        const struct stream_proof *proof = host.stream->proof;
        cr_expect_eq(host.secured, clients[i].name != NULL, "%s: %s", clients[i].what, host.failure);
        cr_expect_eq(proof != NULL, host.secured, "%s", clients[i].what);
        if (clients[i].name != NULL && proof != NULL) {
            cr_expect_str_eq(proof->names[0], clients[i].name, "%s: %s", clients[i].what, proof->names[0]);
            cr_expect_not_null(strstr(proof->method, clients[i].version == TLS1_2_VERSION ? "TLSv1.2" : "TLSv1.3"));
        } else {
            cr_expect_not_null(strstr(host.failure, clients[i].failure), "%s: %s", clients[i].what, host.failure);
        }
        bench_part(&client, &host);
    }
    bench_drop(&b);
}

Test(tls, all_names_of_a_certificate_are_told, .timeout = 60)
{
    static const char *const names[] = {"cn:alice",        "dns:alice.example.org", "email:alice@example.org",
                                        "uri:urn:x:alice", "ip:192.0.2.7",          "ip:2001:db8::7"};
    struct bench b = bench_make();
    struct tls_client client = {.certificate = "alice"};
    struct host host = {0};
    bench_meet(&b, &client, &host);
    cr_assert(host.secured);
    cr_assert_eq(host.stream->proof->count, ARRAY_LENGTH(names));
    for (unsigned i = 0; i < ARRAY_LENGTH(names); i++)
        cr_expect_str_eq(host.stream->proof->names[i], names[i]);
    bench_part(&client, &host);
    bench_drop(&b);
}

Test(tls, names_that_could_be_taken_for_others_are_left_out, .timeout = 60)
{
    char many[2000] = "DNS:x0";
    struct bench b = bench_make();
    for (unsigned i = 1; i < 40; i++)
        text_format(many + strlen(many), sizeof many - strlen(many), ",DNS:x%u", i);
    tls_certificate(&b.place, "nul", false, (const unsigned char *)"alice\0.example.net", 18, NULL);
    tls_certificate(&b.place, "line", false, (const unsigned char *)"alice\nroot", 10, "DNS:fine");
    tls_certificate(&b.place, "many", false, (const unsigned char *)"many", -1, many);
    static const struct {
        const char *certificate, *first;
        unsigned count;
    } cases[] = {{"nul", "", 0}, {"line", "dns:fine", 1}, {"many", "cn:many", STREAM_NAMES_MAX}};
    for (unsigned i = 0; i < ARRAY_LENGTH(cases); i++) {
        struct tls_client client = {.certificate = cases[i].certificate};
        struct host host = {0};
        bench_meet(&b, &client, &host);
        cr_assert(host.secured, "%s", host.failure);
        cr_expect_eq(host.stream->proof->count, cases[i].count, "%s: %u", cases[i].certificate,
                     host.stream->proof->count);
        cr_expect_str_eq(host.stream->proof->names[0], cases[i].first);
        bench_part(&client, &host);
    }
    bench_drop(&b);
}

/* A client that offers a key as well as a certificate has proved what was used. */
Test(tls, without_a_certificate_where_none_is_needed_nothing_is_proved, .timeout = 60)
{
    struct bench b = bench_make();
    struct tls_settings settings = tls_settings_full(&b.place);
    settings.clients_need_one = false;
    tls_credentials_free(b.credentials);
    b.credentials = tls_credentials_of(&settings);
    struct tls_client nobody = {0}, mallory = {.certificate = "mallory"};
    struct host host = {0}, other = {0};
    bench_meet(&b, &nobody, &host);
    cr_assert(host.secured, "%s", host.failure);
    cr_expect_eq(host.stream->proof->count, 0u);
    bench_part(&nobody, &host);
    bench_meet(&b, &mallory, &other);
    cr_expect_not(other.secured, "a certificate that is shown is verified all the same");
    bench_part(&mallory, &other);
    bench_drop(&b);
}

Test(tls, keys_or_a_certificate_alone_will_do, .timeout = 60)
{
    struct bench b = bench_make();
    const struct tls_settings full = tls_settings_full(&b.place);
    const struct tls_settings keys = {.certificate = "", .key = "", .ca = "", .revoked = "", .psk = full.psk};
    const struct tls_settings certificate = {
        .certificate = full.certificate, .key = full.key, .ca = "", .revoked = "", .psk = ""};
    for (int version = TLS1_2_VERSION; version <= TLS1_3_VERSION; version++) {
        struct tls_client carol = {.psk = key, .psk_name = "carol", .version = version};
        struct tls_client alice = {.certificate = "alice", .version = version};
        struct host host = {0}, other = {0};
        tls_credentials_free(b.credentials);
        b.credentials = tls_credentials_of(&keys);
        bench_meet(&b, &carol, &host);
        cr_expect(host.secured, "%s", host.failure);
        cr_expect(host.stream->proof != NULL && strcmp(host.stream->proof->names[0], "psk:carol") == 0);
        bench_part(&carol, &host);
        tls_credentials_free(b.credentials);
        b.credentials = tls_credentials_of(&certificate);
        bench_meet(&b, &alice, &other);
        cr_expect(other.secured, "%s", other.failure);
        cr_expect(other.stream->proof != NULL && other.stream->proof->count == 0,
                  "it was not asked for its certificate");
        bench_part(&alice, &other);
    }
    bench_drop(&b);
}

/* --- bytes --- */

enum { MUCH = 3 << 20 };

static void send_much(struct tls_client *client, SSL *ssl)
{
    const uint8_t *bytes = client->data;
    for (size_t at = 0; at < MUCH;) {
        int n = SSL_write(ssl, bytes + at, (int)MIN((size_t)MUCH - at, (size_t)50000));
        if (n <= 0)
            return;
        at += (size_t)n;
    }
}

static void echo_much(struct tls_client *client, SSL *ssl)
{
    uint8_t *back = malloc(MUCH);
    send_much(client, ssl);
    for (int got = 0, n; got < MUCH; got += n)
        if ((n = SSL_read(ssl, back + got, MUCH - got)) <= 0)
            break;
    SSL_write(ssl, memcmp(back, client->data, MUCH) == 0 ? "good" : "evil", 4);
    SSL_shutdown(ssl);
    free(back);
}

/* Asks for new keys in the midst of it, which have to be answered. */
static void rekey_much(struct tls_client *client, SSL *ssl)
{
    SSL_write(ssl, client->data, 100000);
    SSL_key_update(ssl, SSL_KEY_UPDATE_REQUESTED);
    SSL_write(ssl, (const uint8_t *)client->data + 100000, 100000);
    SSL_key_update(ssl, SSL_KEY_UPDATE_REQUESTED);
    SSL_write(ssl, (const uint8_t *)client->data + 200000, 100000);
    SSL_shutdown(ssl);
    char byte;
    SSL_read(ssl, &byte, 1); /* the answers, and the host's goodbye */
}

Test(tls, new_keys_on_the_way, .timeout = 60)
{
    struct bench b = bench_make();
    uint8_t *bytes = malloc(300000);
    test_fill(bytes, 300000, 7);
    struct tls_client client = {.certificate = "alice", .version = TLS1_3_VERSION, .talk = rekey_much, .data = bytes};
    struct host host = {.room = 300100, .piece = 1234};
    bench_meet(&b, &client, &host);
    cr_expect_eq(host.got, 300000u);
    cr_expect_eq(host.last, 0);
    cr_expect_eq(memcmp(host.received, bytes, 300000), 0);
    bench_part(&client, &host);
    free(bytes);
    bench_drop(&b);
}

static void expect_echo(struct reactor *moves_to, size_t piece)
{
    struct bench b = bench_make();
    uint8_t *bytes = malloc(MUCH);
    test_fill(bytes, MUCH, 5);
    struct tls_client client = {.certificate = "alice", .talk = echo_much, .data = bytes};
    struct host host = {.room = MUCH + 100, .piece = piece, .to_send = bytes, .send_len = MUCH, .moves_to = moves_to};
    bench_meet(&b, &client, &host);
    if (moves_to != NULL) {
        cr_assert_eq(reactor_start(moves_to), 0);
        reactor_join(moves_to);
        cr_expect_eq(host.stream->loop, reactor_loop(moves_to));
    }
    cr_expect_eq(host.got, (size_t)MUCH + 4);
    cr_expect_eq(host.last, 0, "close_notify is an orderly end");
    cr_expect(memcmp(host.received, bytes, MUCH) == 0 && memcmp(host.received + MUCH, "good", 4) == 0);
    bench_part(&client, &host);
    free(bytes);
    bench_drop(&b);
}

Test(tls, megabytes_go_both_ways_at_once, .timeout = 60)
{
    expect_echo(NULL, MUCH + 100);
}

Test(tls, who_reads_little_at_a_time_is_called_until_nothing_is_left, .timeout = 60)
{
    expect_echo(NULL, 777);
}

Test(tls, a_stream_moves_to_another_reactor, .timeout = 60)
{
    char why[200] = "";
    struct reactor_options options = {.name = "other"};
    struct reactor *other = reactor_create(&options, why, sizeof why);
    expect_echo(other, 5000);
    reactor_destroy(other);
}

static void send_once(struct tls_client *client, SSL *ssl)
{
    char word[16];
    SSL_write(ssl, client->data, 16000);
    SSL_read(ssl, word, sizeof word); /* until the host closes: nothing more wakes its socket */
}

Test(tls, bytes_that_left_the_socket_already_are_delivered, .timeout = 60)
{
    struct bench b = bench_make();
    uint8_t *bytes = malloc(16000);
    test_fill(bytes, 16000, 6);
    struct tls_client client = {.certificate = "alice", .talk = send_once, .data = bytes};
    struct host host = {.room = 16000, .piece = 1000, .expected = 16000};
    bench_meet(&b, &client, &host);
    cr_expect_eq(host.got, 16000u);
    cr_expect_geq(host.readables, 16u);
    cr_expect_eq(memcmp(host.received, bytes, 16000), 0);
    bench_part(&client, &host);
    free(bytes);
    bench_drop(&b);
}

/* A call of recv costs one read of the socket, but where it brought all that was asked for. */
Test(tls, a_socket_that_was_emptied_is_not_read_again)
{
    static struct tls_wire wire;
    int fds[2];
    char bytes[8];
    BIO_METHOD *method = tls_socket_method();
    BIO *bio = BIO_new(method);
    cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
    BIO_set_fd(bio, fds[0], BIO_NOCLOSE);
    BIO_set_app_data(bio, &wire);
    cr_assert_eq(write(fds[1], "0123456789", 10), 10);
    cr_expect_eq(BIO_read(bio, bytes, 8), 8);
    cr_expect_not(wire.empty, "there may be more");
    cr_expect_eq(BIO_read(bio, bytes, 8), 2);
    cr_expect(wire.empty);
    cr_assert_eq(write(fds[1], "abc", 3), 3);
    cr_expect(BIO_read(bio, bytes, 8) < 0 && BIO_should_read(bio), "that is for the next call of the owner");
    wire.empty = false;
    cr_expect_eq(BIO_read(bio, bytes, 8), 3);
    close(fds[1]);
    wire.empty = false;
    cr_expect(BIO_read(bio, bytes, 8) == 0 && BIO_eof(bio));
    BIO_free(bio);
    BIO_meth_free(method);
    close(fds[0]);
}

/* --- ends --- */

static void leave_without_a_word(struct tls_client *client, SSL *ssl)
{
    (void)ssl;
    shutdown(client->fd, SHUT_RDWR);
}

static void say_goodbye(struct tls_client *client, SSL *ssl)
{
    (void)client;
    SSL_write(ssl, "last", 4);
    SSL_shutdown(ssl);
}

static void wait_for_goodbye(struct tls_client *client, SSL *ssl)
{
    char byte;
    int n = SSL_read(ssl, &byte, 1);
    *(int *)client->data = SSL_get_error(ssl, n);
}

Test(tls, an_end_without_a_goodbye_is_a_broken_stream, .timeout = 60)
{
    struct bench b = bench_make();
    struct tls_client client = {.certificate = "alice", .talk = leave_without_a_word};
    struct host host = {0};
    bench_meet(&b, &client, &host);
    cr_expect_eq(host.last, STREAM_BROKEN);
    struct iovec iov = {host.received, 10};
    cr_expect_eq(stream_recv(host.stream, &iov, 1), STREAM_BROKEN, "and stays one");
    cr_expect_eq(stream_send(host.stream, &iov, 1), STREAM_BROKEN);
    bench_part(&client, &host);
    bench_drop(&b);
}

Test(tls, the_last_bytes_come_before_the_goodbye, .timeout = 60)
{
    struct bench b = bench_make();
    struct tls_client client = {.certificate = "alice", .talk = say_goodbye};
    struct host host = {0};
    bench_meet(&b, &client, &host);
    cr_expect_eq(host.last, 0);
    cr_expect_eq(host.got, 4u);
    bench_part(&client, &host);
    bench_drop(&b);
}

/* Closes as soon as it is secured, from within. */
static void secured_and_closed(struct stream *stream, const char *failure)
{
    struct host *h = stream->owner_data;
    h->secured = failure == NULL;
    reactor_stop(reactor_of(stream->loop));
    stream_close(stream);
}

Test(tls, a_close_says_goodbye, .timeout = 60)
{
    struct bench b = bench_make();
    int error = 0;
    struct tls_client client = {.place = &b.place, .certificate = "alice", .talk = wait_for_goodbye, .data = &error};
    struct host host = {.stream = tls_client_start(&client, b.reactor)};
    host.stream->owner = &host_owner;
    host.stream->owner_data = &host;
    cr_assert(stream_start_tls(host.stream, b.credentials, secured_and_closed));
    tls_credentials_free(b.credentials); /* a reload in the midst of it */
    b.credentials = NULL;
    reactor_run(b.reactor);
    tls_client_join(&client);
    cr_expect(host.secured);
    cr_expect_eq(error, SSL_ERROR_ZERO_RETURN);
    bench_drop(&b);
}

Test(tls, what_is_no_handshake_fails_and_a_close_in_the_midst_leaves_nothing, .timeout = 60)
{
    struct bench b = bench_make();
    int fds[2];
    struct host host = {0};
    cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    host.stream = socket_stream_create(b.reactor, fds[0]);
    host.stream->owner = &host_owner;
    host.stream->owner_data = &host;
    cr_assert_eq(write(fds[1], "IHAVEOPT\0\0\0\3\0\0\0\0", 16), 16);
    cr_assert(stream_start_tls(host.stream, b.credentials, host_secured));
    reactor_run(b.reactor);
    cr_expect_not(host.secured);
    cr_expect_not_null(strstr(host.failure, "wrong version number"), "%s", host.failure);
    stream_close(host.stream);
    close(fds[1]);
    cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    host.stream = socket_stream_create(b.reactor, fds[0]);
    cr_assert(stream_start_tls(host.stream, b.credentials, host_secured));
    stream_close(host.stream);
    close(fds[1]);
    bench_drop(&b);
}

/* --- files --- */

static const struct {
    const char *what;
    size_t setting; /* that is changed */
    const char *file, *text;
    unsigned mode;
    const char *wrong, *why;
} bad_files[] = {
    {"missing", offsetof(struct tls_settings, certificate), "none", NULL, 0, "certificate", "none cannot be read"},
    {"empty", offsetof(struct tls_settings, certificate), "empty", "", 0600, "certificate", "holds no certificate"},
    {"noise", offsetof(struct tls_settings, ca), "noise", "hello\n", 0600, "ca", "holds no certificate"},
    {"key for all", offsetof(struct tls_settings, key), "open", "x", 0644, "key", "has mode 0644"},
    {"no key", offsetof(struct tls_settings, key), "nokey", "x", 0600, "key", "holds no key of the certificate"},
    {"no setting", offsetof(struct tls_settings, key), "", NULL, 0, "certificate", "needs a key"},
    {"psk for all", offsetof(struct tls_settings, psk), "psk2", "a:00112233445566778899aabbccddeeff\n", 0640, "psk",
     "mode"},
    {"bad psk", offsetof(struct tls_settings, psk), "psk3", "#\na:0011\n", 0600, "psk", "line 2 must have a key of 32"},
    {"no list", offsetof(struct tls_settings, revoked), "noise2", "hello\n", 0600, "revoked", "holds no list"},
};

Test(tls, files_that_do_not_do_are_named)
{
    struct tls_place place = tls_place_make();
    for (unsigned i = 0; i < ARRAY_LENGTH(bad_files); i++) {
        struct tls_settings settings = tls_settings_full(&place);
        const char *wrong = "", *path = *bad_files[i].file != '\0' ? tls_path(&place, bad_files[i].file) : "";
        char why[300] = "";
        *(const char **)((char *)&settings + bad_files[i].setting) = path;
        if (bad_files[i].text != NULL)
            tls_file(&place, bad_files[i].file, bad_files[i].text, strlen(bad_files[i].text), bad_files[i].mode);
        cr_expect_null(tls_credentials_create(&settings, &wrong, why, sizeof why), "%s", bad_files[i].what);
        cr_expect_str_eq(wrong, bad_files[i].wrong, "%s: %s", bad_files[i].what, wrong);
        cr_expect_not_null(strstr(why, bad_files[i].why), "%s: %s", bad_files[i].what, why);
    }
    cr_expect_eq(ERR_peek_error(), 0ul);
    tls_place_drop(&place);
}

Test(tls, a_key_of_another_certificate_is_found_out)
{
    struct tls_place place = tls_place_make();
    struct tls_settings settings = tls_settings_full(&place);
    const char *wrong;
    char why[300];
    settings.key = tls_path(&place, "alice.key");
    cr_expect_null(tls_credentials_create(&settings, &wrong, why, sizeof why));
    cr_expect_str_eq(wrong, "key");
    tls_place_drop(&place);
}

Test(tls, other_contents_of_the_same_files_are_other_credentials)
{
    struct tls_place place = tls_place_make();
    struct tls_settings settings = tls_settings_full(&place);
    struct stream_credentials *first = tls_credentials_of(&settings), *second = tls_credentials_of(&settings);
    cr_expect(tls_credentials_same(first, second));
    cr_expect_not(tls_credentials_same(first, NULL));
    cr_expect(tls_credentials_same(NULL, NULL));
    tls_credentials_free(second);
    settings.clients_need_one = false;
    second = tls_credentials_of(&settings);
    cr_expect_not(tls_credentials_same(first, second));
    tls_credentials_free(second);
    settings.clients_need_one = true;
    tls_certificate(&place, "server", false, (const unsigned char *)"server", -1, NULL);
    second = tls_credentials_of(&settings);
    cr_expect_not(tls_credentials_same(first, second));
    tls_credentials_free(second);
    tls_credentials_free(first);
    tls_place_drop(&place);
}

#define LONG_NAME "nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn"
#define KEY       "00112233445566778899aabbccddeeff"

static const struct {
    const char *text, *wrong; /* NULL: it is good */
    const char *name;         /* to look up */
    unsigned len;             /* of the key that is found */
} psk_files[] = {
    {"a:" KEY, NULL, "a", 16},
    {"a:" KEY "\n", NULL, "b", 0},
    {"a:" KEY "\r\nb:" KEY KEY "\r\n", NULL, "b", 32},
    {"# all\n\na:" KEY KEY KEY KEY "\n", NULL, "a", 64},
    {LONG_NAME LONG_NAME ":" KEY, NULL, LONG_NAME LONG_NAME, 16},
    {LONG_NAME LONG_NAME ":" KEY, NULL, LONG_NAME, 0},
    {LONG_NAME LONG_NAME ":" KEY, NULL, LONG_NAME LONG_NAME "n", 0},
    {"a:" KEY, NULL, "", 0},
    {"", "holds no key", NULL, 0},
    {"# nothing\n", "holds no key", NULL, 0},
    {"a", "line 1 must be NAME:HEX", NULL, 0},
    {":" KEY, "line 1 must be NAME:HEX", NULL, 0},
    {"a:", "line 1 must have a key", NULL, 0},
    {"a:" KEY "0", "line 1 must have a key", NULL, 0},
    {"a:" KEY "0g", "line 1 must have a key", NULL, 0},
    {"a:" KEY KEY KEY KEY "00", "line 1 must have a key", NULL, 0},
    {"a b:" KEY, "line 1 has a name that is not", NULL, 0},
    {"n" LONG_NAME LONG_NAME ":" KEY, "line 1 has a name of more than", NULL, 0},
    {"a:" KEY "\n\na:" KEY, "line 3 has the name of another line", NULL, 0},
};

Test(tls, files_of_shared_keys)
{
    for (unsigned i = 0; i < ARRAY_LENGTH(psk_files); i++) {
        char why[128] = "", *text = strdup(psk_files[i].text);
        unsigned char found[TLS_PSK_KEY_MAX];
        struct tls_psks *psks = tls_psks_parse(text, strlen(text), why, sizeof why);
        cr_expect_eq(psks != NULL, psk_files[i].wrong == NULL, "%s: %s", text, why);
        if (psk_files[i].wrong != NULL)
            cr_expect_eq(strncmp(why, psk_files[i].wrong, strlen(psk_files[i].wrong)), 0, "%s: %s", text, why);
        if (psks != NULL) {
            const char *name = psk_files[i].name;
            cr_expect_eq(tls_psks_find(psks, name, strlen(name), found, sizeof found), psk_files[i].len, "%s in %s",
                         name, text);
            if (psk_files[i].len > 0)
                cr_expect_eq(memcmp(found, "\x00\x11\x22\x33\x44\x55\x66\x77\x88\x99\xaa\xbb\xcc\xdd\xee\xff", 16), 0);
            cr_expect_eq(tls_psks_find(psks, name, strlen(name), found, 15), 0u, "no room");
        }
        tls_psks_free(psks);
        free(text);
    }
}
