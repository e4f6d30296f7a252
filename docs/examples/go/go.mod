module example.org/digits

go 1.19
