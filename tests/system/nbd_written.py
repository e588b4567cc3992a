"""What was answered before a stop is there after it: nbd_written.py ADDRESS PID"""
from nbd_client import *


@case("writes that were answered with success before SIGTERM read back after the restart")
def written(rig):
    c = rig.session()
    with open(os.environ["WRITTEN"]) as lines:
        places = [tuple(map(int, line.split())) for line in lines]
    for offset, seed in places:
        assert c.read(offset, 65536) == pattern(65536, seed), "the write at %d is lost" % offset
    print("%d writes were answered, and are there" % len(places))


main()
