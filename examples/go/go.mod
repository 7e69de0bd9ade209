module example.org/quipu-client

go 1.19
