# gnuplot -e "data='FILE'; picture='FILE.png'; what='...'" surface.gnuplot: the response surface of cache_surface
set terminal pngcairo size 900,480 font "sans,10"
set output picture
set title what
set xlabel "stride, sectors"
set ylabel "distance, reads"
set cblabel "part of a miss"
log2(x) = log(x) / log(2)
side(s) = s == 0 ? 0 : s > 0 ? 1 + log2(s) : -1 - log2(-s)
set xtics ("-64K" -17, "-4K" -13, "-128" -8, "-8" -4, "0" 0, "8" 4, "128" 8, "4K" 13, "64K" 17)
set ytics ("1" 0, "16" 4, "256" 8, "4K" 12, "64K" 16)
set xrange [-17.5:17.5]
set yrange [-0.5:16.5]
set cbrange [0:1]
set palette defined (0 "#1a4f8b", 0.1 "#4f9d69", 0.5 "#e8c547", 1 "#b0402f")
plot data using (side($2)):(log2($1)):($4) with image notitle
