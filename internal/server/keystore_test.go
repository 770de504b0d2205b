package server

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"connectrpc.com/connect"

	ckptdv1 "github.com/ckptd/ckptd/api/ckptd/v1"
	"github.com/ckptd/ckptd/backend/mem"
	"github.com/ckptd/ckptd/crypto"
)

// TestKeystoreFails moves the keystore away while the server runs. Saves for new users are
// unavailable until it is back; the caller learns why and not where, the log has both, and no id.
func TestKeystoreFails(t *testing.T) {
	b := newBed(t, Limits{})
	b.stop()
	b.be = mem.Open()
	dir := filepath.Join(b.dir, "keys")
	keys, err := crypto.OpenFileKeystore(dir, true)
	must(t, err)
	b.opts.Keystore = keys
	var log bytes.Buffer
	b.more = func(o *Options) { o.Log = slog.New(slog.NewJSONHandler(&log, nil)) }
	b.start()
	c := b.checkpoints("")
	mustSave(t, c, ref("t"), draft("before"))
	must(t, os.Rename(dir, dir+".away"))
	other := ref("t")
	other.User = "zq-other"
	save := &ckptdv1.SaveRequest{Ref: other, Draft: draft("while")}
	_, err = c.Save(t.Context(), connect.NewRequest(save))
	wantCode(t, err, connect.CodeUnavailable, ckptdv1.Reason_REASON_UNAVAILABLE)
	if text := err.Error(); !strings.Contains(text, "the keystore cannot be read or written: no such file or directory") || strings.Contains(text, b.dir) {
		t.Errorf("the caller is told %s", text)
	}
	must(t, os.Rename(dir+".away", dir))
	mustSave(t, c, other, draft("after"))
	select {
	case err := <-b.Failed():
		t.Errorf("the server gives up: %v", err)
	default:
	}
	b.stop()
	if text := log.String(); !strings.Contains(text, `"path":"`+filepath.Join(dir, "KEYSTORE")+`","cause":"no such file or directory"`) || strings.Contains(text, other.User) {
		t.Errorf("the log has %s", text)
	}
	b.start()
}
