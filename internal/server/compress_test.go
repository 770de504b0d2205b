package server

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	ckptdv1 "github.com/ckptd/ckptd/api/ckptd/v1"
	"github.com/ckptd/ckptd/internal/access"
)

// farListener makes its connections come from another machine.
type farListener struct{ net.Listener }

type farConn struct{ net.Conn }

func (l farListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return farConn{c}, err
}

func (farConn) RemoteAddr() net.Addr {
	return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 50000}
}

// serveOn serves on another listener until the bed stops.
func (b *bed) serveOn(l net.Listener) {
	served := make(chan error, 1)
	s := b.Server
	go func() { served <- s.Serve(l, false) }()
	b.t.Cleanup(func() { must(b.t, <-served) })
	b.t.Cleanup(b.stop)
}

// loader posts a Load with headers of its own, and returns its answer as it came.
type loader struct {
	client  *http.Client
	url     string
	token   string
	message []byte
}

func newLoader(b *bed, l net.Listener, thread string) *loader {
	b.t.Helper()
	message, err := proto.Marshal(&ckptdv1.LoadRequest{Ref: ref(thread)})
	must(b.t, err)
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, l.Addr().Network(), l.Addr().String())
	}
	transport := &http.Transport{DialContext: dial, DisableCompression: true}
	b.t.Cleanup(transport.CloseIdleConnections)
	return &loader{client: &http.Client{Transport: transport}, url: baseURL + ckptdv1.CheckpointServiceLoadProcedure, token: b.token(access.Everything()), message: message}
}

func (l *loader) load(t testing.TB, body []byte, kind string, header ...string) (*http.Response, []byte) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, l.url, bytes.NewReader(body))
	must(t, err)
	r.Header.Set("Content-Type", "application/"+kind)
	r.Header.Set("Authorization", "Bearer "+l.token)
	for _, h := range header {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Set(name, value)
	}
	res, err := l.client.Do(r)
	must(t, err)
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	must(t, err)
	if res.StatusCode != http.StatusOK {
		t.Fatalf("status %s: %s", res.Status, answer)
	}
	return res, answer
}

// TestAnswersAreCompressedAfar: callers on this machine get answers as they are, however they ask,
// unless the configuration says otherwise; callers on other machines get them compressed if they
// accept that.
func TestAnswersAreCompressedAfar(t *testing.T) {
	tests := []struct {
		name, network, address string
		far, compressLocal     bool
		want                   bool // compressed
	}{
		{"unix", "unix", "other", false, false, false},
		{"loopback", "tcp", "127.0.0.1:0", false, false, false},
		{"far", "tcp", "127.0.0.1:0", true, false, true},
		{"unix by configuration", "unix", "other", false, true, true},
		{"loopback by configuration", "tcp", "127.0.0.1:0", false, true, true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			b := newBed(t, Limits{})
			b.stop()
			b.more = func(o *Options) { o.CompressLocal = test.compressLocal }
			b.start()
			mustSave(t, b.checkpoints(""), ref("t"), draft(strings.Repeat("state ", 10_000)))
			if test.network == "unix" {
				test.address = b.dir + "/" + test.address
			}
			l, err := net.Listen(test.network, test.address)
			must(t, err)
			if test.far {
				b.serveOn(farListener{l})
			} else {
				b.serveOn(l)
			}
			c := newLoader(b, l, "t")
			unzip := func(data []byte) []byte {
				z, err := gzip.NewReader(bytes.NewReader(data))
				must(t, err)
				plain, err := io.ReadAll(z)
				must(t, err)
				return plain
			}
			check := func(name string, zipped bool, message []byte) {
				t.Helper()
				if zipped != test.want {
					t.Errorf("%s: compressed %v, want %v", name, zipped, test.want)
				}
				if zipped {
					message = unzip(message)
				}
				var loaded ckptdv1.LoadResponse
				must(t, proto.Unmarshal(message, &loaded))
				if n := len(loaded.GetCheckpoint().GetChannels()[0].GetData()); n != 60_000 {
					t.Errorf("%s: loaded %d bytes, want 60000", name, n)
				}
			}
			res, answer := c.load(t, c.message, "proto", "Accept-Encoding: gzip")
			check("accepts gzip", res.Header.Get("Content-Encoding") == "gzip", answer)
			res, answer = c.load(t, gzipped(c.message), "proto", "Content-Encoding: gzip")
			check("sends gzip", res.Header.Get("Content-Encoding") == "gzip", answer)
			_, answer = c.load(t, append([]byte{0, 0, 0, 0, byte(len(c.message))}, c.message...), "grpc-web+proto", "Grpc-Accept-Encoding: gzip")
			size := int(answer[1])<<24 | int(answer[2])<<16 | int(answer[3])<<8 | int(answer[4])
			check("gRPC-Web", answer[0] == 1, answer[5:5+size])
			if res, _ := c.load(t, c.message, "proto"); res.Header.Get("Content-Encoding") != "" {
				t.Error("an answer was compressed for a caller that does not accept it")
			}
		})
	}
}

// BenchmarkLoadAcceptingGzip loads 1 MB of text over a Unix socket, as a client that accepts gzip.
func BenchmarkLoadAcceptingGzip(b *testing.B) {
	for _, compress := range []bool{false, true} {
		b.Run(fmt.Sprintf("compress-local=%v", compress), func(b *testing.B) {
			bed := newBed(b, Limits{})
			bed.stop()
			bed.more = func(o *Options) { o.CompressLocal = compress }
			bed.start()
			var text strings.Builder
			for i := 0; text.Len() < 1e6; i++ {
				fmt.Fprintf(&text, "message %d of %d, said at %v. ", i, i*i, time.Unix(int64(i)*7919, 0).UTC())
			}
			mustSave(b, bed.checkpoints(""), ref("t"), draft(text.String()))
			l, err := net.Listen("unix", bed.dir+"/other")
			must(b, err)
			bed.serveOn(l)
			c := newLoader(bed, l, "t")
			for b.Loop() {
				c.load(b, c.message, "proto", "Accept-Encoding: gzip")
			}
		})
	}
}
