/* The iSCSI target, a whole connection at a time: sessions, reads and writes. */
#include "tests/unit/target/initiator.h"

#include <stdlib.h>

Test(iscsi, a_session_reads_what_it_wrote)
{
    struct ini_rig *rig = ini_rig_make(2000, (struct iscsi_limits){0});
    struct ini *ini = ini_session(rig, 1, "ImmediateData=Yes|InitialR2T=No");
    uint8_t bhs[PDU_BHS_BYTES], cdb[16], data[4096];
    test_fill(data, sizeof data, 9);
    ini_cdb_rw(cdb, true, 3, 8);
    ini_command(ini, bhs, INI_F | INI_W, 4096, cdb);
    ini_send(ini, bhs, data, 4096);
    cr_expect_eq(ini_answer(ini).status, 0);
    cr_expect_arr_eq(rig->disks[0]->bytes + 3 * 512, data, 4096);
    ini_cdb_rw(cdb, false, 3, 8);
    struct ini_answer answer = ini_do(ini, INI_R, 4096, cdb);
    cr_expect(answer.status == 0 && answer.len == 4096 && answer.collapsed);
    cr_expect_arr_eq(answer.data, data, 4096);
    ini_drop(ini);
    ini_rig_drop(rig);
}
