# Results to lines `name value goal verdict`: see run.sh. Input: CELL SERVER ROUND TICKS SECONDS iops=.. mbps=.. cpu_client=.. ..
# The server `corbel` is compared with each peer; corbel-LEVEL are shown for information.

function median(list, n,    i, j, t) {
    for (i = 2; i <= n; i++)
        for (j = i; j > 1 && list[j - 1] > list[j]; j--) {
            t = list[j]
            list[j] = list[j - 1]
            list[j - 1] = t
        }
    return n % 2 ? list[(n + 1) / 2] : (list[n / 2] + list[n / 2 + 1]) / 2
}

function value(key,    i) {
    for (i = 6; i <= NF; i++)
        if (index($i, key "=") == 1)
            return substr($i, length(key) + 2)
}

function over_rounds(cell, server, what,    i, list) {
    for (i = 1; i <= rounds; i++)
        list[i] = figure[cell, server, i, what]
    return median(list, rounds)
}

function ratio(cell, peer, what,    i, list) {
    for (i = 1; i <= rounds; i++)
        list[i] = figure[cell, "corbel", i, what] / figure[cell, peer, i, what]
    return median(list, rounds)
}

!(($1) in seen_cell) { seen_cell[$1]; cells[++cell_count] = $1 }
!(($2) in seen_server) { seen_server[$2]; servers[++server_count] = $2 }
{
    rounds = $3 > rounds ? $3 : rounds
    $4 = $4 > 0 ? $4 : 1 # less than a tick
    figure[$1, $2, $3, "iops"] = value("iops")
    figure[$1, $2, $3, "mbps"] = value("mbps")
    figure[$1, $2, $3, "cpu"] = $4 / ticks / (value("iops") * $5) * 100000
    figure[$1, $2, $3, "cpu_gb"] = $4 / ticks / (value("mbps") * $5) * 1000
    if (value("calls") != "") {
        counted = 1
        figure[$1, $2, $3, "calls"] = value("calls") / (value("iops") * $5)
    }
    figure[$1, $2, $3, "busy_server"] = $4 / ticks / $5
    figure[$1, $2, $3, "busy_load"] = value("cpu_client")
}

END {
    for (c = 1; c <= cell_count; c++) {
        cell = cells[c]
        small = cell ~ /_4k_/
        for (s = 1; s <= server_count; s++)
            if (servers[s] !~ /^corbel/) {
                r = ratio(cell, servers[s], "iops")
                wanted = !small ? sequential_goal : cell ~ /_q32$/ ? goal : single_goal
                verdict = wanted == "-" ? "-" : r >= wanted ? "ok" : "short"
                printf "%s_vs_%s %.2f %s %s\n", cell, servers[s], r, wanted, verdict
                r = ratio(cell, servers[s], "cpu_gb")
                verdict = cpu_goal == "-" ? "-" : r < cpu_goal ? "ok" : "short"
                printf "%s_cpu_vs_%s %.2f %s %s\n", cell, servers[s], r, cpu_goal, verdict
            }
        for (s = 1; s <= server_count; s++) {
            name = cell "_" servers[s]
            printf "%s_%s %.0f - -\n", name, small ? "iops" : "mbps", over_rounds(cell, servers[s], small ? "iops" : "mbps")
            printf "%s_%s %.3f - -\n", name, "cpu", over_rounds(cell, servers[s], small ? "cpu" : "cpu_gb")
            if (counted)
                printf "%s_calls %.3f - -\n", name, over_rounds(cell, servers[s], "calls")
            printf "%s_busy_server %.2f - -\n", name, over_rounds(cell, servers[s], "busy_server")
            printf "%s_busy_load %.2f - -\n", name, over_rounds(cell, servers[s], "busy_load")
        }
    }
}
