// SPDX-License-Identifier: Apache-2.0
#include "comm/tcp/tcp_address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

static uint8_t prefix_bits(const uint8_t *mask, int bytes)
{
    int bits = 0;
    for (int i = 0; i < bytes; i++) {
        bits += __builtin_popcount(mask[i]);
    }
    return (uint8_t)bits;
}

/* Returns false if this is not an address at which the host can be called. */
static bool address_of(const struct ifaddrs *entry, ls_tcp_address *out)
{
    if (!entry->ifa_addr || !entry->ifa_netmask || !(entry->ifa_flags & IFF_UP)) {
        return false;
    }
    *out = (ls_tcp_address){.loopback = (entry->ifa_flags & IFF_LOOPBACK) != 0};
    if (entry->ifa_addr->sa_family == AF_INET) {
        out->family = 4;
        out->prefix = prefix_bits((const uint8_t *)&((struct sockaddr_in *)entry->ifa_netmask)->sin_addr, 4);
        memcpy(out->bytes, &((struct sockaddr_in *)entry->ifa_addr)->sin_addr, 4);
        return true;
    }
    if (entry->ifa_addr->sa_family == AF_INET6) {
        const struct in6_addr *address = &((struct sockaddr_in6 *)entry->ifa_addr)->sin6_addr;
        out->family = 6;
        out->prefix =
            prefix_bits((const uint8_t *)&((struct sockaddr_in6 *)entry->ifa_netmask)->sin6_addr, 16);
        memcpy(out->bytes, address, 16);
        return !IN6_IS_ADDR_LINKLOCAL(address);
    }
    return false;
}

static void address_name(const ls_tcp_address *address, char text[INET6_ADDRSTRLEN])
{
    inet_ntop(address->family == 4 ? AF_INET : AF_INET6, address->bytes, text, INET6_ADDRSTRLEN);
}

static bool is_wanted(const ls_tcp_address *address, const char *interface, const char *wanted)
{
    char text[INET6_ADDRSTRLEN];
    address_name(address, text);
    return !wanted || !wanted[0] || strcmp(interface, wanted) == 0 ||
           strncmp(text, wanted, strlen(wanted)) == 0;
}

static void list_there(const struct ifaddrs *entries, char *text, size_t bytes)
{
    size_t used = 0;
    for (const struct ifaddrs *entry = entries; entry && used < bytes; entry = entry->ifa_next) {
        ls_tcp_address address;
        char name[INET6_ADDRSTRLEN];
        if (address_of(entry, &address)) {
            address_name(&address, name);
            used += (size_t)snprintf(text + used, bytes - used, "%s%s %s", used ? ", " : "", entry->ifa_name,
                                     name);
        }
    }
}

ls_status ls_tcp_own_addresses(const char *wanted, bool loopback_only, ls_tcp_book *book_out)
{
    struct ifaddrs *entries = NULL;
    if (getifaddrs(&entries) != 0) {
        return ls_fail_errno(errno, "can't list the network interfaces");
    }
    ls_tcp_book book = {0};
    for (const struct ifaddrs *entry = entries; entry && book.count < LS_TCP_ADDRESSES_MAX;
         entry = entry->ifa_next) {
        ls_tcp_address *address = &book.addresses[book.count];
        if (address_of(entry, address) && is_wanted(address, entry->ifa_name, wanted) &&
            (!loopback_only || address->loopback)) {
            book.count++;
        }
    }
    char there[512] = "none";
    list_there(entries, there, sizeof there);
    freeifaddrs(entries);
    if (book.count == 0) {
        return ls_fail(LS_ERR_INVALID, "no network address matches%s%s%s; available are: %s",
                       wanted && wanted[0] ? " LS_COMM_INTERFACE " : "", wanted ? wanted : "",
                       loopback_only ? " (without a token only loopback is used)" : "", there);
    }
    *book_out = book;
    return LS_OK;
}

static bool has_family(const ls_tcp_book *book, uint8_t family)
{
    for (uint32_t i = 0; i < book->count; i++) {
        if (book->addresses[i].family == family) {
            return true;
        }
    }
    return false;
}

static bool is_loopback_only(const ls_tcp_book *book)
{
    for (uint32_t i = 0; i < book->count; i++) {
        if (!book->addresses[i].loopback) {
            return false;
        }
    }
    return true;
}

/* 0: loopback of this host; 1: in a network of this host; 2: elsewhere; 3: cannot work. */
static int rank_of(const ls_tcp_book *own, const ls_tcp_address *address, bool same_host)
{
    if (address->loopback) {
        return same_host || is_loopback_only(own) ? 0 : 3;
    }
    if (!has_family(own, address->family)) {
        return 3;
    }
    for (uint32_t i = 0; i < own->count; i++) {
        if (!own->addresses[i].loopback && ls_tcp_same_network(&own->addresses[i], address)) {
            return 1;
        }
    }
    return 2;
}

uint32_t ls_tcp_candidates(const ls_tcp_book *own, const ls_tcp_book *theirs, bool same_host,
                           uint32_t order_out[LS_TCP_ADDRESSES_MAX])
{
    uint32_t count = 0;
    for (int rank = 0; rank < 3; rank++) {
        for (uint32_t i = 0; i < theirs->count; i++) {
            if (rank_of(own, &theirs->addresses[i], same_host) == rank) {
                order_out[count++] = i;
            }
        }
    }
    return count;
}

socklen_t ls_tcp_sockaddr(const ls_tcp_address *address, uint16_t port, struct sockaddr_storage *out)
{
    memset(out, 0, sizeof *out);
    if (address->family == 4) {
        struct sockaddr_in *in = (struct sockaddr_in *)out;
        in->sin_family = AF_INET;
        in->sin_port = htons(port);
        memcpy(&in->sin_addr, address->bytes, 4);
        return sizeof *in;
    }
    struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)out;
    in6->sin6_family = AF_INET6;
    in6->sin6_port = htons(port);
    memcpy(&in6->sin6_addr, address->bytes, 16);
    return sizeof *in6;
}

void ls_tcp_address_text(const ls_tcp_address *address, uint16_t port, char text[64])
{
    char name[INET6_ADDRSTRLEN] = "?";
    address_name(address, name);
    snprintf(text, 64, address->family == 4 ? "%s:%u" : "[%s]:%u", name, port);
}
