module github.com/ckptd/ckptd/plugins/pdk

go 1.24
