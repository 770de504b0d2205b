module example.com/ckptd-plugins

go 1.24

require github.com/ckptd/ckptd/plugins/pdk v0.0.0

replace github.com/ckptd/ckptd/plugins/pdk => ../../pdk
