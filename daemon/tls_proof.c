/*
 * What a peer has proved, as text: the names of its certificate, which the handshake has verified, or the name of the
 * key it shares with us. A name that is not printable, holds a NUL or is too long is left out: it could only be taken
 * for another one.
 */
#include <arpa/inet.h>
#include <openssl/x509v3.h>
#include <string.h>

#include "core/log.h"
#include "daemon/tls_internal.h"

static void add_name(struct stream_proof *proof, const char *kind, const char *text, size_t len)
{
    if (proof->count == STREAM_NAMES_MAX || len == 0 || strlen(kind) + len > STREAM_NAME_MAX)
        return;
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)text[i] < ' ' || text[i] == 0x7f)
            return;
    text_format(proof->names[proof->count++], sizeof proof->names[0], "%s%.*s", kind, (int)len, text);
}

static void add_string(struct stream_proof *proof, const char *kind, const ASN1_STRING *string)
{
    unsigned char *utf8;
    int len = ASN1_STRING_to_UTF8(&utf8, string);
    if (len < 0)
        return;
    add_name(proof, kind, (const char *)utf8, (size_t)len);
    OPENSSL_free(utf8);
}

static void add_address(struct stream_proof *proof, const ASN1_OCTET_STRING *address)
{
    char text[INET6_ADDRSTRLEN];
    int len = ASN1_STRING_length(address);
    int family = len == 4 ? AF_INET : len == 16 ? AF_INET6 : AF_UNSPEC;
    if (family != AF_UNSPEC && inet_ntop(family, ASN1_STRING_get0_data(address), text, sizeof text) != NULL)
        add_name(proof, "ip:", text, strlen(text));
}

static void add_common_names(struct stream_proof *proof, const X509_NAME *subject)
{
    for (int at = -1; (at = X509_NAME_get_index_by_NID(subject, NID_commonName, at)) >= 0;)
        add_string(proof, "cn:", X509_NAME_ENTRY_get_data(X509_NAME_get_entry(subject, at)));
}

static void add_alternative(struct stream_proof *proof, const GENERAL_NAME *name)
{
    if (name->type == GEN_DNS)
        add_string(proof, "dns:", name->d.dNSName);
    else if (name->type == GEN_EMAIL)
        add_string(proof, "email:", name->d.rfc822Name);
    else if (name->type == GEN_URI)
        add_string(proof, "uri:", name->d.uniformResourceIdentifier);
    else if (name->type == GEN_IPADD)
        add_address(proof, name->d.iPAddress);
}

static void take_certificate(const X509 *certificate, struct stream_proof *proof)
{
    add_common_names(proof, X509_get_subject_name(certificate));
    GENERAL_NAMES *names = X509_get_ext_d2i(certificate, NID_subject_alt_name, NULL, NULL);
    for (int i = 0; i < sk_GENERAL_NAME_num(names); i++)
        add_alternative(proof, sk_GENERAL_NAME_value(names, i));
    GENERAL_NAMES_free(names);
}

/* A key that was looked up need not be the one that was used: with TLS 1.3 a client may offer some, and a certificate
 * wins if none fits the cipher. Nothing else is ever resumed, so "reused" says that it was. */
static bool psk_was_used(SSL *ssl)
{
    const SSL_CIPHER *cipher = SSL_get_current_cipher(ssl);
    return SSL_session_reused(ssl) || (cipher != NULL && SSL_CIPHER_get_auth_nid(cipher) == NID_auth_psk);
}

void tls_proof_take(SSL *ssl, const struct tls_handshake *handshake, struct stream_proof *proof)
{
    *proof = (struct stream_proof){0};
    text_format(proof->method, sizeof proof->method, "%s %s", SSL_get_version(ssl), SSL_get_cipher_name(ssl));
    X509 *certificate = SSL_get1_peer_certificate(ssl);
    if (certificate != NULL && SSL_get_verify_result(ssl) == X509_V_OK)
        take_certificate(certificate, proof);
    X509_free(certificate);
    if (psk_was_used(ssl))
        add_name(proof, "psk:", handshake->psk_name, strlen(handshake->psk_name));
}
