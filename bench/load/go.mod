module trioka/bench/load

go 1.21
