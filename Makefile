# Corbel: one Makefile, no recursion.        V=1 shows the commands
#
#   make                    build corbeld and corbelctl under build/
#   make demo               a RAID 6 array on six sparse files, served on loopback, until Ctrl-C
#   make demo DETACH=1      the same, left running; prints nbd= iscsi= web= pidfile= config=     (DIR= LEVEL= SIZE= *_PORT=)
#   make demo-stop DIR=     ends it
#   make check              install what is missing, build, run every test
#   make unit layers        parts of check: unit system sim-short fuzz-short lint-docs lint-shape san
#   make fuzz soak          the long forms; make soak-kill LOOPS=200: kill -9 under load, members replaced;
#                           make soak-cache LOOPS=200: kill -9 of what a battery or a journal protects
#   make sim SEEDS= FIRST=  arrays on simulated disks, with faults and crashes; docs/testing.md    (sim-short, sim-fresh, sim-planted, sim-planted-short)
#   make bench              side by side with other servers, as ratios     (SECTION=nbd|nbd_tls|iscsi|raid6|journal|hit ROUNDS=3 SECONDS=2)
#   make bench-cache        the cache over hard disks in virtual time, as tables
#   make bench-surface      its response surface (stride and distance of reads), drawn
#   make cache-traces       replacement policies on generated traces, as a table
#   make deps               install what building and testing need (Debian 12, root or sudo)
#   make SAN=address,undefined unit     sanitized, in a build directory of its own
#   make install DESTDIR= PREFIX=/usr   make uninstall   make fmt   make lint   make clean

VERSION    := 0.1.0
PREFIX     ?= /usr/local
SBINDIR    ?= $(PREFIX)/sbin
MANDIR     ?= $(PREFIX)/share/man
SYSCONFDIR ?= /etc
UNITDIR    ?= $(PREFIX)/lib/systemd/system
INSTALL    ?= install
PKG_CONFIG ?= pkg-config
NM         ?= nm
SAN        ?=
WERROR     ?= $(if $(CI),1)

comma   := ,
variant := $(if $(SAN),san-$(subst $(comma),-,$(SAN)),release)
BUILD   ?= build
B       := $(BUILD)/$(variant)

.DEFAULT_GOAL := all
.DELETE_ON_ERROR:
Q := $(if $(V),,@)
say = $(if $(V),,@printf '  %-7s %s\n' $(1) $(2))

# -- tools and flags: pkg-config is asked only when something is compiled -----------------------------------------------
LIBS       := libevent_core libevent_extra libevent_pthreads liburing libisal libconfig jansson blkid libsystemd libssl libcrypto libnbd libiscsi
TEST_LIBS  := criterion
no_compile := clean help deps demo demo-stop check bench fmt uninstall
ifneq ($(filter-out $(no_compile),$(or $(MAKECMDGOALS),all)),)
missing := $(foreach l,$(LIBS),$(if $(shell $(PKG_CONFIG) --exists $(l) && echo y),,$(l)))
ifneq ($(strip $(missing)),)
$(error missing development packages: $(missing); `make deps` installs them)
endif
LIB_CFLAGS  := $(shell $(PKG_CONFIG) --cflags $(LIBS))
LIB_LDLIBS  := $(shell $(PKG_CONFIG) --libs $(LIBS)) -lpthread
TEST_LDLIBS := $(shell $(PKG_CONFIG) --libs $(TEST_LIBS) 2>/dev/null) $(shell $(PKG_CONFIG) --libs libisal jansson libcrypto)
endif

CFLAGS ?= -O2 -g
WARN   := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla -Wundef -Wwrite-strings \
          -Wpointer-arith -Wimplicit-fallthrough -Wno-format-truncation $(if $(WERROR),-Werror)
HARDEN := $(if $(SAN),,-D_FORTIFY_SOURCE=2) -fstack-protector-strong -fno-strict-aliasing -fno-omit-frame-pointer
ALL_CFLAGS  = -std=gnu11 -D_GNU_SOURCE -DCORBEL_VERSION='"$(VERSION)"' -I. $(WARN) $(HARDEN) \
              $(if $(SAN),-fsanitize=$(SAN) -fno-sanitize-recover=all) $(LIB_CFLAGS) $(CPPFLAGS) $(CFLAGS)
ALL_LDFLAGS = $(if $(SAN),-fsanitize=$(SAN)) -Wl,-z,relro,-z,now $(LDFLAGS)

# -- floors: each is an archive and may use only those below it. The link lines of the unit tests enforce it. ------------
floors     := target cache raid core
src.core   := $(wildcard core/*.c)
src.raid   := $(wildcard raid/*.c)
src.cache  := $(wildcard cache/*.c)
src.target := $(wildcard target/*.c target/*/*.c)
src.ctl    := daemon/corbelctl.c daemon/ctl_client.c daemon/ctl_print.c daemon/ctl_rescue.c \
              daemon/ctl_rescue_volume.c daemon/ctl_import.c daemon/md_disks.c daemon/units.c
src.daemon := $(filter-out daemon/main.c daemon/ctl_%.c daemon/corbelctl.c,$(wildcard daemon/*.c))
obj = $(patsubst %.c,$(B)/%.o,$(1))
lib = $(foreach l,$(1),$(B)/$(l).a)

.PHONY: all
all: $(B)/corbeld $(B)/corbelctl

$(foreach l,$(floors) daemon,$(eval $(B)/$(l).a: $(call obj,$(src.$(l)))))
$(B)/%.a:
	$(call say,AR,$@)
	$(Q)mkdir -p $(@D) && rm -f $@ && $(AR) rcs $@ $^

$(B)/%.o: %.c
	$(call say,CC,$<)
	$(Q)mkdir -p $(@D) && $(CC) $(ALL_CFLAGS) -MMD -MP -c $< -o $@

$(B)/daemon/control.o: daemon/page.html

$(B)/corbeld: $(B)/daemon/main.o $(call lib,daemon $(floors))
	$(call say,LINK,$@)
	$(Q)$(CC) $(ALL_LDFLAGS) $^ -o $@ $(LIB_LDLIBS)

$(B)/corbelctl: $(call obj,$(src.ctl)) $(call lib,raid core)
	$(call say,LINK,$@)
	$(Q)$(CC) $(ALL_LDFLAGS) $^ -o $@ $(LIB_LDLIBS)

# -- unit tests: a test of a floor links that floor and those below it, nothing else --------------------------------------
below.core   := core
below.raid   := raid core
below.cache  := cache raid core
below.target := target cache raid core
below.daemon := daemon target cache raid core
testfloors   := $(foreach l,core raid cache target daemon,$(if $(wildcard tests/unit/$(l)/*.c),$(l)))
src.testlib  := $(wildcard tests/unit/lib/*.c)

define TEST_RULE
$(B)/tests/unit/$(1)/run: $(call obj,$(wildcard tests/unit/$(1)/*.c) $(src.testlib)) $(call lib,$(below.$(1)))
	$$(call say,LINK,$$@)
	$$(Q)$$(CC) $$(ALL_LDFLAGS) $$^ -o $$@ $$(TEST_LDLIBS) $(if $(filter daemon,$(1)),$$(LIB_LDLIBS))
endef
$(foreach l,$(testfloors),$(eval $(call TEST_RULE,$(l))))

# Criterion passes a test whose sanitizer report came at exit (a leak), so the report files are the verdict; and it
# succeeds when a filter matches nothing, so the count of tests is looked at too.
SANLOG = $(abspath $(B))/san
.PHONY: unit $(addprefix unit-,$(testfloors))
unit: $(addprefix unit-,$(testfloors))
define UNIT_RULE
unit-$(1): $(B)/tests/unit/$(1)/run
	$$(call say,TEST,$$<)
	$$(Q)rm -f $$(SANLOG).*
	$$(Q)ASAN_OPTIONS=log_path=$$(SANLOG) UBSAN_OPTIONS=print_stacktrace=1:log_path=$$(SANLOG) \
	  $$< --timeout 120 -j2 $$(if $$(FILTER),--filter '$$(FILTER)') >$$<.log 2>&1 || { cat $$<.log; exit 1; }
	$$(Q)if ls $$(SANLOG).* >/dev/null 2>&1; then cat $$(SANLOG).*; echo "sanitizer reports: failing"; exit 1; fi
	$$(Q)grep -q 'Tested: .*[1-9]' $$<.log || { cat $$<.log; echo "no test ran"; exit 1; }
	$$(Q)grep 'Synthesis' $$<.log
endef
$(foreach l,$(testfloors),$(eval $(call UNIT_RULE,$(l))))

# -- simulation: the real array on simulated disks, see docs/testing.md ---------------------------------------------------------
SEEDS ?= 10000
FIRST ?= 1
JOBS  ?= 2
simulate := $(B)/tests/sim/simulate
sim_parts := $(call obj,$(filter-out $(if $(SAN),%/shortcuts.c),$(wildcard tests/sim/*.c)) tests/unit/lib/testloop.c \
               tests/unit/lib/gf_reference.c) $(call lib,cache raid core)
sim_link   = $(CC) $(ALL_LDFLAGS) $(patsubst %,-Wl$(comma)--wrap=%,volume_open $(if $(SAN),,mmap munmap superblock_text_write superblock_text_read))
sim_libs   = $(shell $(PKG_CONFIG) --libs libisal jansson)
$(simulate): $(sim_parts)
	$(call say,LINK,$@)
	$(Q)$(sim_link) $^ -o $@ $(sim_libs)
SIM_SECONDS ?= 15
.PHONY: sim sim-short sim-fresh sim-planted sim-planted-short
sim: $(simulate)
	$(Q)$(simulate) --seeds $(FIRST)..$$(($(FIRST) + $(SEEDS) - 1)) -j $(JOBS)
# Seeds that once failed, and the same ones every time.
sim-short: $(simulate)
	$(call say,SIM,$(simulate))
	$(Q)sed -n 's/^\([0-9][0-9]*\) .*/\1/p' tests/sim/seeds.txt | while read seed; do $(simulate) --seed $$seed || exit 1; done
	$(Q)$(simulate) --seeds 1..4000 -j $(JOBS) --seconds $(SIM_SECONDS)
# Others with each change of what is simulated, and the same ones for the same sources.
sim-fresh: $(simulate)
	$(Q)first=$$(cat core/*.[ch] raid/*.[ch] cache/*.[ch] tests/sim/*.[ch] | cksum | cut -d' ' -f1)0000000; echo "fresh seeds from $$first"; \
	  $(simulate) --seeds $$first..$$((first + 9999999)) -j $(JOBS) --seconds $(SIM_SECONDS)

# Known mistakes, one after the other: each must be caught. The short form: those that are caught soon.
sim-planted-short: PLANTS = --short
sim-planted sim-planted-short: $(simulate)
	$(call say,PLANT,$(simulate))
	$(Q)PLANT_CC='$(subst ','\'',$(CC) $(ALL_CFLAGS))' PLANT_LINK='$(sim_link)' PLANT_PARTS='$(sim_parts) $(sim_libs)' \
	  tests/sim/planted.sh $(B) -j $(JOBS) $(PLANTS)

# -- layers: the storage code may not reach the world but through core/, nor climb ------------------------------------------
FORBIDDEN := time|times|gettimeofday|clock_gettime|clock|s?rand|random|getrandom|open|openat|close|read|write|p?readv?|p?writev?|ioctl|socket|send|recv|sendmsg|recvmsg|poll|select|epoll_[a-z_]*|sleep|usleep|nanosleep|pthread_[a-z_]*|event_[a-z_]*|evhttp_[a-z_]*|io_uring_[a-z_]*|sd_[a-z_]*|blkid_[a-z_]*|config_[a-z_]*|v?s?n?printf|v?f?printf|puts|exit|getenv
.PHONY: layers
layers: $(call lib,$(floors))
	$(call say,LAYERS,floors)
	$(Q)NM=$(NM) FORBIDDEN='$(FORBIDDEN)' tests/lint/layers.sh $(B)

# -- fuzz: each tests/fuzz/fuzz_NAME.c is one LLVMFuzzerTestOneInput(); its corpus is tests/fuzz/corpus/NAME/ ---------------
# What killed one is left in $(B)/crash-fuzz_NAME-HASH and run first from then on; once mended it goes to the corpus.
fuzzers      := $(patsubst tests/fuzz/fuzz_%.c,%,$(wildcard tests/fuzz/fuzz_*.c))
FUZZ_SECONDS ?= 600
FUZZ_SEED    ?= 1
FUZZ_SAN     := address,undefined
.PHONY: fuzz fuzz-short fuzz-run $(addprefix fuzz-run-,$(fuzzers))
.SECONDARY: $(call obj,$(wildcard tests/fuzz/*.c))
$(B)/tests/fuzz/%: $(B)/tests/fuzz/%.o $(B)/tests/fuzz/driver.o $(call obj,$(src.testlib)) $(call lib,daemon $(floors))
	$(call say,LINK,$@)
	$(Q)$(CC) $(ALL_LDFLAGS) $^ -o $@ $(LIB_LDLIBS)

fuzz-short:
	$(Q)$(MAKE) --no-print-directory -j2 SAN=$(FUZZ_SAN) FUZZ_SECONDS=10 fuzz-run
fuzz:
	$(Q)$(MAKE) --no-print-directory SAN=$(FUZZ_SAN) FUZZ_SECONDS=$(FUZZ_SECONDS) fuzz-run
fuzz-run: $(addprefix fuzz-run-,$(fuzzers))
$(addprefix fuzz-run-,$(fuzzers)): fuzz-run-%: $(B)/tests/fuzz/fuzz_%
	$(call say,FUZZ,$*)
	$(Q)cd $(B) && ASAN_OPTIONS=abort_on_error=1 UBSAN_OPTIONS=print_stacktrace=1:abort_on_error=1 \
	  tests/fuzz/fuzz_$* -seconds $(FUZZ_SECONDS) -seed $(FUZZ_SEED) $(wildcard $(CURDIR)/tests/fuzz/corpus/$*) \
	  $(wildcard $(CURDIR)/$(B)/crash-fuzz_$*-*)

# -- bench: a timing is nobody's pass criterion, so this is no part of check --------------------------------------------------
SECTION ?= all
ROUNDS  ?= 3
SECONDS ?= 2
.PHONY: bench
bench:
	$(Q)$(MAKE) --no-print-directory deps DEPS_FOR=bench >&2
	$(Q)$(MAKE) --no-print-directory all loads >&2
	$(Q)tests/bench/run.sh $(B) $(SECTION) $(ROUNDS) $(SECONDS)

# Replacement policies on generated traces: the table of docs/cache.md.
cache_traces := $(B)/tests/bench/cache_traces
.PHONY: cache-traces
$(cache_traces): $(B)/tests/bench/cache_traces.o $(call lib,cache core)
	$(call say,LINK,$@)
	$(Q)$(CC) $(ALL_LDFLAGS) $^ -o $@ $(shell $(PKG_CONFIG) --libs libisal) -lm
cache-traces: $(cache_traces)
	$(Q)$(cache_traces)

# The cache over arrays on hard disks in virtual time: the tables of docs/cache.md. cache-speed: what check asserts of them.
cache_disks := $(B)/tests/bench/cache_disks
.PHONY: bench-cache cache-speed
$(cache_disks): $(call obj,tests/bench/cache_disks.c tests/bench/cache_rig.c tests/bench/cache_load.c tests/bench/harddisk.c tests/unit/lib/testloop.c) \
  $(call lib,cache raid core)
	$(call say,LINK,$@)
	$(Q)$(CC) $(ALL_LDFLAGS) $^ -o $@ $(shell $(PKG_CONFIG) --libs libisal jansson) -lm
bench-cache: $(cache_disks)
	$(Q)$(cache_disks)
# The response surface, drawn. (gnuplot-nox)
cache_surface := $(B)/tests/bench/cache_surface
.PHONY: bench-surface
$(cache_surface): $(call obj,tests/bench/cache_surface.c tests/bench/cache_rig.c tests/bench/cache_load.c tests/bench/harddisk.c tests/unit/lib/testloop.c) \
  $(call lib,cache raid core)
	$(call say,LINK,$@)
	$(Q)$(CC) $(ALL_LDFLAGS) $^ -o $@ $(shell $(PKG_CONFIG) --libs libisal jansson) -lm
bench-surface: $(cache_surface)
	$(Q)command -v gnuplot >/dev/null || { echo "bench-surface: gnuplot is missing (package gnuplot-nox)" >&2; exit 1; }
	$(Q)for mode in none adaptive always; do \
	    $(cache_surface) $$mode > $(B)/surface-$$mode.txt && tail -1 $(B)/surface-$$mode.txt && \
	    gnuplot -e "data='$(B)/surface-$$mode.txt'; picture='$(B)/surface-$$mode.png'; what='cache of 256 MiB, read-ahead $$mode'" \
	        tests/bench/surface.gnuplot && echo "drawn: $(B)/surface-$$mode.png" || exit 1; done
cache-speed: $(cache_disks)
	$(call say,SPEED,$(cache_disks))
	$(Q)$(cache_disks) check

# -- load generators for the bench: they know our servers by their protocols only --------------------------------------------
loads := $(B)/tests/bench/load_nbd $(B)/tests/bench/load_iscsi
.PHONY: loads
.SECONDARY: $(call obj,$(wildcard tests/bench/*.c))
loads: $(loads)
$(loads): $(B)/tests/bench/load_%: $(B)/tests/bench/load_%.o $(B)/tests/bench/load.o $(B)/tests/bench/load_tls.o $(call lib,core)
	$(call say,LINK,$@)
	$(Q)$(CC) $(ALL_LDFLAGS) $^ -o $@ $(shell $(PKG_CONFIG) --libs libisal libssl libcrypto)

# What section hit measures against, and how it counts system calls.
null_device := $(B)/tests/bench/null_server $(B)/tests/bench/count_calls.so
loads: $(null_device)
$(B)/tests/bench/null_server: $(B)/tests/bench/null_server.o $(call lib,daemon $(floors))
	$(call say,LINK,$@)
	$(Q)$(CC) $(ALL_LDFLAGS) $^ -o $@ $(LIB_LDLIBS)
$(B)/tests/bench/count_calls.so: tests/bench/count_calls.c
	$(call say,LINK,$@)
	$(Q)mkdir -p $(@D) && $(CC) $(ALL_CFLAGS) -shared -fPIC $(ALL_LDFLAGS) $< -o $@

# -- what is needed, on Debian 12 ---------------------------------------------------------------------------------------------
BUILD_DEPS := gcc make pkg-config libc6-dev libevent-dev liburing-dev libisal-dev libconfig-dev libjansson-dev libblkid-dev \
              libsystemd-dev libssl-dev libnbd-dev libiscsi-dev uthash-dev
TEST_DEPS  := libcriterion-dev qemu-utils qemu-block-extra libnbd-bin python3-libnbd nbd-client python3 libiscsi-bin fio e2fsprogs \
              fuse3 openssl git curl nut-server
LINT_DEPS  := clang-format cppcheck shellcheck mandoc
BENCH_DEPS := nbdkit nbd-server qemu-system-common tgt linux-perf
.PHONY: deps
deps:
	$(Q)etc/deps.sh $(BUILD_DEPS) $(if $(filter demo,$(DEPS_FOR)),,$(TEST_DEPS) $(LINT_DEPS)) $(if $(filter bench,$(DEPS_FOR)),$(BENCH_DEPS))

# -- demonstration ---------------------------------------------------------------------------------------------------------------
.PHONY: demo demo-stop
demo:
	$(Q)$(MAKE) --no-print-directory deps DEPS_FOR=demo >&2
	$(Q)$(MAKE) --no-print-directory --silent all >&2
	$(Q)etc/demo.sh start $(B)
demo-stop:
	$(Q)etc/demo.sh stop
export DIR LEVEL SIZE NBD_PORT ISCSI_PORT WEB_PORT DETACH

# -- every test --------------------------------------------------------------------------------------------------------------------
.PHONY: check check-all system system-san san lint-docs lint-shape
check:
	$(Q)$(MAKE) --no-print-directory deps
	$(Q)$(MAKE) --no-print-directory check-all WERROR=1
check-all: all layers lint-docs lint-shape unit cache-speed
	$(Q)$(MAKE) --no-print-directory SAN=address,undefined unit
	$(Q)$(MAKE) --no-print-directory SIM_SECONDS=30 sim-short sim-fresh
	$(Q)$(MAKE) --no-print-directory SAN=address,undefined SIM_SECONDS=5 sim-short
	$(Q)$(MAKE) --no-print-directory sim-planted-short
	$(Q)$(MAKE) --no-print-directory fuzz-short
	$(Q)$(MAKE) --no-print-directory system system-san
	@echo "check: everything passed"
system: all loads
	$(call say,SYSTEM,$(B))
	$(Q)tests/system/run.sh $(B) $(TESTS)
# The sanitized daemon under the tests that send it the most unusual things.
SAN_TESTS := $(wildcard tests/system/test_cache.sh tests/system/test_nbd_raw.sh tests/system/test_nbd_stop.sh tests/system/test_levels.sh \
             tests/system/test_hostile.sh tests/system/test_cli.sh tests/system/test_access.sh \
             tests/system/test_iscsi_pdu.sh tests/system/test_remote_faults.sh tests/system/test_nbd_tls.sh \
             tests/system/test_power_sources.sh tests/system/test_arena.sh tests/system/test_cache_log.sh)
system-san:
	$(Q)$(MAKE) --no-print-directory SAN=address,undefined all
	$(Q)$(MAKE) --no-print-directory SAN=address,undefined system TESTS="$(SAN_TESTS)"
lint-docs:
	$(call say,LINT,docs)
	$(Q)tests/lint/docs.sh
lint-shape:
	$(call say,LINT,shape)
	$(Q)tests/lint/shape.sh

SOAK_MINUTES ?= 60
LOOPS        ?= 200
.PHONY: soak soak-kill soak-cache fmt lint
soak: all
	$(Q)SOAK_MINUTES=$(SOAK_MINUTES) TEST_TIMEOUT=$$(( $(SOAK_MINUTES) * 60 + 600 )) tests/system/run.sh $(B) tests/system/test_kill_loop.sh
soak-kill: all
	$(Q)LOOPS=$(LOOPS) EVERY=10 TEST_TIMEOUT=$$(( $(LOOPS) * 30 + 600 )) tests/system/run.sh $(B) tests/system/test_kill_members.sh
soak-cache: all
	$(Q)LOOPS=$(LOOPS) TEST_TIMEOUT=$$(( $(LOOPS) * 30 + 600 )) tests/system/run.sh $(B) tests/system/test_kill_protected.sh
fmt:
	$(Q)git ls-files '*.c' '*.h' | xargs clang-format -i
lint: layers lint-docs lint-shape
	$(call say,LINT,format)
	$(Q)git ls-files '*.c' '*.h' | xargs clang-format --dry-run -Werror
	$(call say,LINT,cppcheck)
	$(Q)cppcheck --quiet --error-exitcode=1 --std=c11 --enable=warning,portability --include=tests/lint/cppcheck.h \
	  --suppressions-list=tests/lint/cppcheck.suppress -D__GNUC__ -I. core raid cache target daemon
	$(call say,LINT,shell)
	$(Q)shellcheck -S warning -s sh -e SC2034,SC2120,SC1091 etc/*.sh tests/lint/*.sh tests/system/*.sh tests/bench/*.sh tests/sim/*.sh
	$(Q)mandoc -T lint -W warning docs/man/*.[0-9]

# -- install ---------------------------------------------------------------------------------------------------------------------------
.PHONY: install uninstall clean help
install: all
	$(INSTALL) -D -m 755 $(B)/corbeld $(DESTDIR)$(SBINDIR)/corbeld
	$(INSTALL) -D -m 755 $(B)/corbelctl $(DESTDIR)$(SBINDIR)/corbelctl
	$(INSTALL) -D -m 644 etc/corbel.conf $(DESTDIR)$(PREFIX)/share/doc/corbel/corbel.conf.example
	$(Q)test -e $(DESTDIR)$(SYSCONFDIR)/corbel/corbel.conf || \
	  $(INSTALL) -D -m 640 etc/corbel.conf $(DESTDIR)$(SYSCONFDIR)/corbel/corbel.conf
	$(Q)mkdir -p $(DESTDIR)$(UNITDIR)
	sed 's|@SBINDIR@|$(SBINDIR)|; s|@SYSCONFDIR@|$(SYSCONFDIR)|' systemd/corbeld.service.in >$(DESTDIR)$(UNITDIR)/corbeld.service
	$(INSTALL) -D -m 644 systemd/corbeld.socket $(DESTDIR)$(PREFIX)/share/doc/corbel/corbeld.socket.example
	for page in docs/man/*.[0-9]; do $(INSTALL) -D -m 644 $$page $(DESTDIR)$(MANDIR)/man$${page##*.}/$${page##*/}; done
uninstall:
	rm -f $(DESTDIR)$(PREFIX)/share/doc/corbel/corbel.conf.example $(DESTDIR)$(PREFIX)/share/doc/corbel/corbeld.socket.example $(DESTDIR)$(SBINDIR)/corbeld $(DESTDIR)$(SBINDIR)/corbelctl $(DESTDIR)$(UNITDIR)/corbeld.service \
	  $(DESTDIR)$(MANDIR)/man8/corbeld.8 $(DESTDIR)$(MANDIR)/man8/corbelctl.8 $(DESTDIR)$(MANDIR)/man5/corbel.conf.5
clean:
	rm -rf $(BUILD)
help:
	@sed -n '1,/^$$/s/^# \{0,1\}//p' Makefile

-include $(shell find $(B) -name '*.d' 2>/dev/null)
