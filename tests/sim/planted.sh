#!/bin/sh
# Can the simulator find faults? Each entry of the table plants one known mistake in a copy of a source, and runs seeds
# from 1 on until it is caught; one that is not caught within its limit is an error at the end. Nothing of it stands in
# the sources themselves; an entry that finds nothing to change is an error.
#
#   planted.sh BUILD [-j N] [NAME...]      BUILD: where the unchanged simulator has been built (build/release)
#   planted.sh BUILD [-j N] --short        a handful, in as many corners, that are caught within a few seeds
#
# A limit may name the theme of all its runs (config.c): "500:owed" means 500 seeds with --theme owed. Mistakes of caches
# are tried with --caches, "500:caches" and "500:caches:mains", all others with --no-caches. With -j several mistakes are tried at once: each of N processes goes through the table and takes what no other has taken.
#
# Only the changed source is compiled: its object stands before the archives when the simulator is linked. PLANT_CC,
# PLANT_LINK and PLANT_PARTS (objects, archives, libraries) come from the Makefile.
set -u
build=$1
shift
jobs=1
[ "${1:-}" = -j ] && jobs=$2 && shift 2
wanted=" $* "
tree=$build/planted
[ "$wanted" = " --short " ] && wanted=" labels-not-flushed rebuilding-member-read clean-before-flushed \
rows-not-locked log-not-durable swept-while-one-is-away flush-on-a-bad-battery cleaned-though-written-meanwhile "
bad=0

# Nobody else has it.
is_wanted() # name
{
    case $wanted in
    "  " | *" $1 "*) mkdir "$tree/$1" 2>/dev/null ;;
    *) false ;;
    esac
}

line() # name, seed, limit, what was said
{
    printf '%-38s %7s %14s  %.120s\n' "$@"
}

# An entry that is not tried must have something to change all the same: else nobody hears of it until it is.
still_applies() # file and expression in pairs
{
    while [ $# -gt 0 ]; do
        sed "$2" "$1" | cmp -s "$1" - && echo "$name: nothing to change in $1" && return 1
        shift 2
    done
}

# The objects of the changed sources are added to `objects`.
build_planted() # file and expression in pairs
{
    objects=
    while [ $# -gt 0 ]; do
        mkdir -p "$here/${1%/*}"
        sed "$2" "$1" >"$here/$1"
        objects="$objects $here/${1%.c}.o"
        eval "$PLANT_CC" -w -c "$here/$1" -o "$here/${1%.c}.o" || return 1
        shift 2
    done
    eval "$PLANT_LINK" "$objects" "$PLANT_PARTS" -o "$here/simulate"
}

plant() # name, limit, then file and expression in pairs
{
    name=$1 limit=$2 here=$tree/$1
    shift 2
    still_applies "$@" || bad=1
    is_wanted "$name" || return
    how=--no-caches theme=${limit#*:}
    case $limit in
    *:caches*) how=--caches theme=${theme#caches} theme=${theme#:} ;;
    *:*) ;;
    *) theme= ;;
    esac
    [ -n "$theme" ] && how="$how --theme $theme"
    if ! build_planted "$@"; then
        line "$name" - "$limit" "NOT PLANTED"
        bad=1
        return
    fi
    # shellcheck disable=SC2086 # some words
    said=$("$here/simulate" --seeds "1..${limit%%:*}" $how --quick 2>&1 | sed -n 's/^.*seed \([0-9]*\) .*FAILED: /\1 /p' | head -1)
    if [ -n "$said" ]; then
        line "$name" "${said%% *}" "$limit" "${said#* }"
    else
        line "$name" - "$limit" "NOT CAUGHT"
        bad=1
    fi
    rm -rf "${here:?}"/*
}

plants()
{
plant acknowledged-before-recorded 2000 \
    raid/array_members.c 's/if (losses_recorded(array) || array->frozen)/if (true)/'
plant labels-not-flushed 2000 \
    raid/label.c 's/\({WRITE_COPY, [A-Z_]*, PLACE_OF_LABEL}\), {FLUSH, 0, 0}/\1/'
plant stale-member-accepted 2000 \
    raid/assembly.c 's/if (history_is_current(winner, &label->array))/if (true)/' \
    raid/array_members.c 's/sb_member_move(&array->description.members\[slot\], SB_FAILED);/;/'
plant new-fork-not-drawn 5000 \
    raid/array_members.c 's/fork_wanted = true/fork_wanted = false/' \
    raid/array.c 's/fork_wanted = true/fork_wanted = false/'
plant fork-of-one-believed-torn 2000:split \
    raid/assembly_history.c '/^static bool never_ran/,/^}/{s/history_committed(old) < parted && //; s/whole->committed >= parted &&$/whole->committed >= parted;/; s/^ *share_a_live_member(old, whole);$//}'
plant torn-fork-known-to-one-believed 2000:split \
    raid/assembly_history.c '/^static bool never_ran/,/^}/s/ whole->committed >= parted &&$//'
plant rebuilding-member-read 500 \
    raid/row_band.c '/^uint64_t row_readable/,/^}/s/member_readable/member_writable/' \
    raid/row.c 's/if (member_readable(/if (member_writable(/' \
    raid/row_io.c 's/BLK_READ ? member_readable/BLK_READ ? member_writable/'
plant rmw-in-unsynced-rows 2000:aftermath \
    raid/row_band.c 's/\.synced = volume_region(op->volume, op->row) != REGION_SUSPECT/.synced = true/'
plant no-dirty-mark 500 \
    raid/array_activity.c '/^static void make_dirty/,/^}/s/clean = false/clean = true/'
plant no-resync-after-a-crash 500 \
    raid/map_store.c '/^static unsigned doubtful/,/^}/s/if (store->array->description.clean)/if (true)/'
plant fua-ignored 2000 \
    raid/row_io.c 's/\.flags = io->flags/.flags = 0/'
plant flush-ignored 500 \
    raid/run.c '/^static void change_start/,/^}/s/refused = changes \&\& v->failed;/refused = !changes || v->failed;/'
plant clean-before-flushed 500 \
    raid/array_activity.c 's/array_flush_start(array, &activity->flush, activity_flushed);/(activity->flush.array = array, activity_flushed(\&activity->flush));/'
plant active-before-flushed 2000:rebuilt \
    raid/rebuild.c 's/array_flush_start(array, &array->rebuild.flush, pass_flushed);/(array->rebuild.flush.array = array, pass_flushed(\&array->rebuild.flush));/'
plant checkpoint-before-flushed 2000:owed \
    raid/rebuild.c 's/array_flush_start(array, &rebuild->checkpoint_flush, checkpoint_flushed);/(rebuild->checkpoint_flush.array = array, checkpoint_flushed(\&rebuild->checkpoint_flush));/'
plant part-of-a-row-counts-as-rebuilt 5000 \
    raid/row_region.c 's/&& op->len == op->volume->layout.row_data;/;/'
plant doubtful-rows-rebuilt-from-other-members 5000:owed \
    raid/row_band.c 's/q.synced ? prefer_members(op, q.readable) : 0/prefer_members(op, q.readable)/'
plant doubtful-rows-not-rebuilt-again 5000:owed \
    raid/rebuild.c 's/if (region_get(map, row) != REGION_SUSPECT)/if (true)/'
plant rows-not-locked 500 \
    raid/row_lock.c 's/if (holder != NULL) {/if (holder == op) {/'
plant burst-not-frozen 2000:cable \
    raid/array_members.c 's/bool burst = no_answer(status) \&\&/bool burst = false \&\&/'
plant unsynced-not-suspect 2000:aftermath \
    raid/array.c 's/clean = array_maps_count(array, REGION_BIT(REGION_SUSPECT)) == 0;/clean = true;/'
plant opened-without-flush 3000:opening \
    raid/array.c 's/array_flush_start(array, &array->activity.flush, open_flushed);/array_commit(array, \&array->open_wait);/'
plant row-believed-after-a-refusal 2000:aftermath \
    raid/row_bad.c 's/bad = band->refused != 0 ? refused_roles(op, band, &lost) : 0;/bad = 0;/'
plant scrub-blames-the-wrong-chunk 2000 \
    raid/row_scrub.c 's/^    return role;/    return role == 0;/'
plant scrub-rewrites-parity-of-located-data 2000 \
    raid/row_scrub.c 's/    if (role >= 0)$/    if (role < -9)/'
plant log-not-durable 2000 \
    raid/journal_store.c 's/\.flags = BLK_FUA,/.flags = 0,/'
plant log-before-losses 2000:pulled \
    raid/journal_store.c '/^static void group_record/,/^}/s/if (losses_wait(j->array, &j->recorded))/if (true)/'
plant replay-out-of-order 5000 \
    raid/journal.c 's/return x->id < y->id ? -1 : 1;/return x->id < y->id ? 1 : -1;/'
plant tail-before-flush 3000 \
    raid/journal_store.c 's/if (caches_are_volatile(j))/if (!j->with_tail \&\& caches_are_volatile(j))/'
plant absent-not-recorded-before-replay 3000:pulled \
    raid/array.c '/^static void open_flushed/,/^}/s/array_commit(/if (flush->array->replay_wanted) open_over(\&flush->array->open_wait.task); else array_commit(/'
plant ppl-without-flush 3000:pulled \
    raid/journal_store.c 's/if (j->with_tail || flush_is_wanted(j))/if (j->with_tail)/'
plant log-not-forgotten 5000 \
    raid/journal_store.c '/^bool journal_forget/,/^}/s/return wait_until.*/return wait->over = true;/'
plant rejoined-with-old-log 8000:returned \
    raid/array_online.c 's/if (online->array->journal == NULL || journal_settle(online->array->journal, &online->settled))/if (true)/'
plant swept-while-one-is-away 2000 \
    raid/map_store.c '/^static bool member_away/,/^}/s/return true;/return false;/'
plant swept-though-lost-in-the-flush 2000:returned \
    raid/map_store.c 's/if (store->sweeping \&\& !member_away(store))/if (store->sweeping)/'
plant clean-row-written-while-degraded 2000 \
    raid/row_region.c 's/return op->volume->consistency == SB_BITMAP || op->volume->degraded;/return op->volume->consistency == SB_BITMAP;/'
plant changed-before-the-loss-is-on-disk 1000:alone \
    raid/map_store.c 's/if (!STAILQ_EMPTY(&store->group) \&\& !losses_wait/if (false \&\& !losses_wait/'
plant planned-before-it-joined 2000:joined \
    raid/row.c 's/if (changes_data(op) \&\& !op->fill \&\& !op->unmap \&\& !op->logged \&\& row_region_joined(op))/if (false)/'
plant caught-up-from-another-fork 2000:split \
    raid/assembly.c 's/missed_from = 0; .* across a split brain .*/missed_from = 1;/' \
    raid/assembly_history.c '/^bool history_is_of_slot/,/^}/{s/return theirs->generation < until;/return true;/; s/^    return false;$/    return true;/}'
plant caught-up-though-unmarked 2000:returned \
    raid/array_members.c 's/ \&\& !something_unmarked(array);/ \&\& (something_unmarked(array) || true);/'
plant late-answer-in-returned-pages 5000 \
    raid/patience.c 's/else if (!page_is_own(c, i)) {/else if (false) {/; /^static void late_answer/,/^}/s/page_put(/if (c->below.op != BLK_READ) page_put(/'
plant bad-range-cleared-too-early 1000:mended \
    raid/row.c 's/io->flags |= BLK_FUA;/;/'
plant unreadable-source-ignored 3000:spoil \
    raid/row_bad.c 's/if (op->kind == ROW_WORK_REBUILD)$/if (op->kind == ROW_WORK_REBUILD) return true; else if (false)/'
plant replaced-disk-misses-writes 2000:replace \
    raid/shadow.c '/^static bool goes_to_new/,/^}/s/return req->op == BLK_FLUSH || (req->off >= s->from/return req->op == BLK_FLUSH \&\& (req->off >= s->from/'
plant replaced-before-flushed 1000:replaced \
    raid/array_replace.c 's/array_flush_start(array, &r->flush, flushed);/(r->flush.array = array, flushed(\&r->flush));/' \
    raid/array_commit.c 's/ || array->commit.others_wait,/,/'
plant device-loss-not-recorded 2000:log \
    raid/journal_device.c 's/^    if (other)$/    if (false)/'
plant device-loss-not-waited-for 5000:log \
    raid/journal_device.c '/^static void record(/,/^}/s/array->losses.generation = .*;/;/'
plant device-given-up-before-written-out 3000:log \
    raid/journal_store.c '/^static void drain(/,/^}/s/(done_below(j) < j->next_id \&\& !j->array->frozen)/false/'
plant zeroes-over-what-was-written 2000:init \
    raid/row_region.c '/somebody wrote to it first/,/stop = true/s/op->stop = true;/op->fill = true;/'
plant initialised-before-flushed 2000:init \
    raid/row_init.c 's/op->change.flush_first = true;/op->change.flush_first = false;/'
plant flush-on-a-bad-battery 2000:caches \
    cache/flush.c 's/^    if (mode_flushes_at_once(c) \&\&/    if ((mode_flushes_at_once(c) || c->o.protection == CACHE_PROTECT_BATTERY) \&\&/'
plant fua-kept-in-memory 2000:caches \
    cache/change.c 's/(!(req->flags \& BLK_FUA) || mode_flushes_at_once(c) || commit_is_in_use(c)) \&\&/true \&\&/'
plant cleaned-though-written-meanwhile 2000:caches \
    cache/destage.c 's/dirt_set(c, line, b, b->dirty | back, (uint8_t)(b->leaving \& ~sectors));/dirt_set(c, line, b, failed ? b->dirty | back : (uint8_t)(b->dirty \& ~sectors), (uint8_t)(b->leaving \& ~sectors));/'
plant drained-though-on-its-way 2000:caches \
    cache/flush.c 's/^        if ((int32_t)(d->epoch - epoch) <= 0)$/        if (false)/'
plant drained-though-set-aside 2000:caches:mended \
    cache/flush.c 's/^    lines_recall(&c->lines, c->epoch);$/;/'
plant stale-bytes-kept 2000:caches \
    cache/read.c 's/bool keep = ok \&\& !(b->flags \& BLOCK_STALE);/bool keep = ok;/'
plant discarded-and-dirty 2000:caches \
    cache/change.c '/^static void block_hears/,/^}/s/dirt_clean(c, b, sectors);/if (req->op != BLK_WRITE) { block_settle(\&c->blocks, b); return; } dirt_clean(c, b, sectors);/'
plant told-of-no-volatile-cache 2000:caches \
    cache/mode.c '/^void mode_tell/,/^}/s/c->dev.info.volatile_cache = is_volatile(c);/;/'
plant no-drain-when-power-fails 2000:caches \
    cache/mode.c 's/        drain_start(c); .*/;/'
plant held-answers-given-early 2000:caches:battery \
    cache/mode.c 's/^    absorb_hold(c, was == .*/    absorb_hold(c, false);/'
plant strict-without-fua 2000:caches \
    cache/change.c 's/return c->below->info.volatile_cache \&\& (!c->dev.info.volatile_cache || .*/return false;/'
plant flush-before-destaged 2000:caches \
    cache/flush.c 's/^    if (oldest != NULL \&\& (int32_t)(oldest->epoch - epoch) <= 0)$/    if (false)/'
plant changes-not-in-turn 2000:caches \
    cache/change.c 's/^    if (change_meets(c, req->off, req->len)) {/    if (false) {/'
plant page-written-in-place 2000:caches \
    cache/block.c 's/if (b->page != NULL \&\& b->page->refs == 1 \&\& !is_published(s, b->page))/if (b->page != NULL)/'
plant volume-not-flushed 2000:caches \
    cache/flush.c 's/^    blk_submit(c->below, &c->flush);$/    c->flush.status = BLK_OK; flush_done(\&c->flush);/'
plant kept-while-bad 2000:caches \
    cache/mode.c 's/return modes\[c->mode\].absorbs \&\& !c->paused;/return (modes[c->mode].absorbs || c->o.protection == CACHE_PROTECT_BATTERY) \&\& !c->paused;/'
plant arena-withdrawn-before-published 2000:caches \
    cache/arena.c '/^void arena_publish/,/^}/{s/^    settle_bytes(arena, page->data.*/if (before != NULL) withdraw(arena, header_of(arena, before));\n&/; s/^    if (before != NULL)$/    if (false)/; s/^    uint16_t version = 0;/&/}'
plant arena-page-changed-in-place 2000:caches \
    cache/block.c 's/ \&\& !is_published(s, b->page))$/)/'
plant arena-withdrawn-before-the-flush 2000:caches \
    cache/settle.c 's/return c->settle.runs != NULL \&\& .*/return false;/'
plant arena-not-claimed 2000:caches \
    cache/claim.c 's/return c->claim == CLAIM_HELD || c->claim == CLAIM_RENEWING;/return true;/'
plant arena-claim-given-back-too-early 3000:caches \
    cache/claim.c 's/return commit_may_return(c) \&\& .*/return true;/'
plant arena-more-than-was-published 2000:caches \
    cache/recover.c 's/sectors = sectors_left(c, number, had);/sectors = sectors_left(c, number, 0xff);/'
plant arena-not-made-persistent 2000:caches \
    cache/arena.c '/^void arena_publish/,/^}/s/^    settle_bytes(arena, page->data.*/;/'
plant log-tail-before-destaged 2000:caches:ring \
    cache/commit.c '/^static void lazy_look/,/^}/s/flush_submit(c, &m->lazy);/(void)commit_drained(c, \&m->lazy, BLK_OK);/'
plant log-does-not-say-what-is-gone 2000:caches:ring \
    cache/commit.c 's/if (!(m->gone->flags \& CACHE_CHANGE))/if (true)/'
plant log-older-than-the-volume 2000:caches:ring \
    cache/commit.c '/^bool commit_lets_leave/,/^}/s/    if (c->o.log == NULL || .*/    if (true || c->o.log == NULL || m->state >= COMMIT_EMPTYING ||/'
plant log-not-flushed 2000:caches:ring \
    cache/log.c '/^static void commit_go_on/,/^}/s/flush_all(log);/commit_is_over(log);/'
plant log-groups-of-another-round 2000:caches:ring \
    cache/log_replay.c 's/r->group.sequence == r->sequence \&\& //; s/ \&\& group->epoch == label->epoch//'
plant log-older-device-believed 2000:caches:ring \
    cache/log_replay.c 's/is_newer(&r->labels\[i\], &r->labels\[newest\])/is_newer(\&r->labels[newest], \&r->labels[i])/'
plant log-claim-not-renewed 2000:caches:ring \
    cache/commit.c 's/m->renew \&\& c->closed == NULL \&\& claim_renew(c)/false/'
plant log-without-its-claim-believed 2000:caches:ring \
    cache/log_replay.c 's/if (r->labels\[newest\].generation < log->o.least_generation)/if (false)/'
plant log-replayed-and-not-flushed 3000:caches:ring \
    cache/log_replay.c '/^static void batch_start(/,/^}/s/blk_submit(r->volume, &r->flush);/r->flush.status = BLK_OK, flush_done(\&r->flush);/'
plant relayout-position-before-flushed 3000:relayout \
    raid/relayout_job.c 's/array_flush_start(r->array, &r->flush, flushed);/(r->flush.array = r->array, flushed(\&r->flush));/'
plant relayout-log-before-flushed 3000:relayout \
    raid/relayout_job.c 's/array_flush_start(r->array, &r->flush, log_flushed);/(r->flush.array = r->array, log_flushed(\&r->flush));/'
plant relayout-logged-step-without-its-log 2000:relayout \
    raid/relayout_job.c 's/r->step.logged ? RELAYOUT_LOGGING : RELAYOUT_COPYING/RELAYOUT_COPYING/'
plant relayout-split-at-the-wrong-edge 500:relayout \
    raid/front.c 's/bool in_front = end <= f->position;/bool in_front = end <= f->moving;/'
plant relayout-window-not-held 2000:relayout \
    raid/front.c '/^static bool must_wait/,/^}/s/return f->hold != FRONT_HOLD_WRITES || req->op != BLK_READ;/return false;/'
plant relayout-not-drained 3000:relayout \
    raid/relayout_job.c '/^static void look/,/^}/s/else if (!quiet_up_to_target(r))/else if (false)/'
plant relayout-passed-rows-not-forgotten 2000:relayout \
    raid/relayout_job.c 's/if (map != NULL \&\& region_get(map, row_at(r, r->forgotten)) != REGION_UNWRITTEN)/if (false)/'
plant relayout-rows-behind-the-end-not-forgotten 3000:relayout \
    raid/relayout_job.c 's/^        forget_rows(map, rows_that_count_no_more(r, relayout_end(&r->shapes)), map->regions);/        ;/'
plant relayout-rows-to-come-believed 3000:relayout \
    raid/relayout_job.c 's/^    forget_rows(map, from, to);/    ;/'
plant relayout-log-that-counts-forgotten 2000:relayout \
    raid/relayout_job.c '/^void relayout_begun/,/^}/s/if (logged != r->position)/if (false)/'
plant relayout-disk-without-the-log-is-whole 4000:relayout \
    raid/rebuild.c 's/ || relayout_log_counts(array))/)/'
plant relayout-skips-what-was-written 2000:relayout \
    raid/relayout_job.c '/^static bool nothing_there/,/^}/s/row + rows) == row + rows \&\&/row + 1) == row + 1 \&\&/'
plant relayout-skipped-before-the-map-is-on-disk 8000:relayout \
    raid/relayout_job.c 's/^        map_store_change(map_of(r, r->new), &r->unwritten);/        commit(r);/'
plant relayout-row-under-way-not-rebuilt 8000:relayout \
    raid/relayout_job.c '/^bool relayout_side_is_idle/,/^}/s/sm_state(.*RELAYOUT_RESTING/true/'
plant relayout-log-over-what-was-there 8000:relayout \
    raid/relayout_log.c 's/region_set(&r->log_map, row, REGION_UNWRITTEN);/;/'
plant relayout-free-step-judged-at-its-end 2000:relayout \
    raid/relayout_step.c '/^static uint64_t free_rows/,/^}/s/if (borders_are_apart(r, border_after(r, border, middle), old))/if (borders_are_apart(r, border_after(r, border, middle), old_border(r, position_at(r, border_after(r, border, middle)))))/'
plant relayout-sides-lost-one-by-one 3000:relayout \
    raid/array_members.c 's/if (!relayout_sides(array, volume, sides))/if (relayout_sides(array, volume, sides) || true)/'
plant log-not-all-that-a-flush-covers 2000:caches:ring \
    cache/commit.c 's/return change || (flush \&\& .*/return change;/'
}

rm -rf "$tree"
mkdir -p "$tree"
line mistake seed limit "what the simulator says"
workers=
while [ "$jobs" -gt 1 ]; do
    (plants; exit "$bad") &
    workers="$workers $!"
    jobs=$((jobs - 1))
done
plants
for worker in $workers; do
    wait "$worker" || bad=1
done
exit $bad
