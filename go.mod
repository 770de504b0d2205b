module github.com/ckptd/ckptd

go 1.26.0
