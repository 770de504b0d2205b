package codec

import (
	"bytes"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"
	"testing"
)

//go:embed testdata/*.txt
var vectorFiles embed.FS

// vector is one encoding of testdata, as testdata/README.md describes them.
type vector struct {
	where string // file and line
	name  string
	params
	decoder, expect, why string
	raw, on, builds      []byte
	body                 []byte
}

// loadVectors reads every vector of testdata. It fails when there is nothing to read.
func loadVectors(tb testing.TB) []vector {
	tb.Helper()
	files, err := vectorFiles.ReadDir("testdata")
	if err != nil || len(files) == 0 {
		tb.Fatalf("no files of vectors: %v", err)
	}
	var all []vector
	for _, f := range files {
		text, err := vectorFiles.ReadFile(path.Join("testdata", f.Name()))
		if err != nil {
			tb.Fatal(err)
		}
		vectors, err := parseVectors(f.Name(), string(text))
		if err != nil {
			tb.Fatal(err)
		}
		all = append(all, vectors...)
	}
	return all
}

// parseVectors reads one file: vectors apart by blank lines, each of header lines and then lines of
// hex.
func parseVectors(file, text string) ([]vector, error) {
	var all []vector
	fresh := true
	for i, line := range strings.Split(text, "\n") {
		where := fmt.Sprintf("%s:%d", file, i+1)
		if strings.HasPrefix(line, "#") {
			continue
		}
		line, _, _ = strings.Cut(line, "  #")
		if strings.TrimSpace(line) == "" {
			fresh = true
			continue
		}
		if fresh {
			all = append(all, vector{where: where})
			fresh = false
		}
		v := &all[len(all)-1]
		if err := v.line(line); err != nil {
			return nil, fmt.Errorf("%s: %w", where, err)
		}
	}
	for _, v := range all {
		if decoders[v.decoder] == nil || v.name == "" || (v.expect == "malformed") != (v.why != "") || v.expect != "ok" && v.expect != "malformed" {
			return nil, fmt.Errorf("%s: vector lacks a header, or has a wrong one", v.where)
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s: no vectors", file)
	}
	return all, nil
}

func (v *vector) line(line string) (err error) {
	key, value, isHeader := strings.Cut(line, ": ")
	if !isHeader {
		b, err := unhex(line)
		v.body = append(v.body, b...)
		return err
	}
	switch key {
	case "decoder":
		v.decoder = value
	case "name":
		v.name = value
	case "expect":
		v.expect = value
	case "why":
		v.why = value
	case "seq":
		v.seq, err = strconv.ParseUint(value, 10, 64)
	case "target":
		v.target, err = strconv.Atoi(value)
	case "most":
		v.most, err = strconv.Atoi(value)
	case "raw":
		v.raw, err = unhex(value)
	case "base":
		v.on, err = unhex(value)
		v.base = len(v.on)
	case "builds":
		v.builds, err = unhex(value)
		v.target = len(v.builds)
	default:
		return fmt.Errorf("unknown header %q", key)
	}
	return err
}

func unhex(s string) ([]byte, error) { return hex.DecodeString(strings.ReplaceAll(s, " ", "")) }

func TestVectors(t *testing.T) {
	known := map[string][]byte{}
	for _, s := range samples() {
		known[s.decoder+": "+s.name] = s.enc
	}
	have := map[string]bool{}
	for _, v := range loadVectors(t) {
		t.Run(v.decoder+": "+v.name, func(t *testing.T) {
			have[v.decoder+" "+v.expect] = true
			got, err := decoders[v.decoder](v.body, v.params)
			switch {
			case v.expect == "malformed" && (!errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), v.why)):
				t.Errorf("%s: error %v, want %q", v.where, err, v.why)
			case v.expect == "ok" && (err != nil || !bytes.Equal(got, v.body)):
				t.Errorf("%s: %v, encodes to % x", v.where, err, got)
			case v.expect == "ok":
				v.checkMeaning(t, known)
			}
		})
	}
	for name := range decoders {
		if !have[name+" ok"] || !have[name+" malformed"] {
			t.Errorf("testdata lacks an ok or a malformed %s", name)
		}
	}
}

// checkMeaning compares a good vector with its described content, or with the sample of its name.
func (v *vector) checkMeaning(t *testing.T, known map[string][]byte) {
	switch v.decoder {
	case "block":
		if got, err := testZstd.AppendRaw(nil, v.body, v.most); err != nil || !bytes.Equal(got, v.raw) {
			t.Errorf("%s: restores to % x, %v", v.where, got, err)
		}
	case "delta":
		d, err := testZstd.ParseDelta(v.body, v.target, v.base, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := Compose(nil, []Delta{d}, v.on); !bytes.Equal(got, v.builds) {
			t.Errorf("%s: builds % x", v.where, got)
		}
	default:
		if want, ok := known[v.decoder+": "+v.name]; !ok || !bytes.Equal(v.body, want) {
			t.Errorf("%s: the sample of that name encodes to % x", v.where, want)
		}
	}
}

// TestEverySampleHasAVector makes sure that the vectors include the samples, whose meaning is in
// the code. The bytes of a zstd frame depend on the compressor; the vectors have frames made by
// hand instead.
func TestEverySampleHasAVector(t *testing.T) {
	have := map[string]bool{}
	for _, v := range loadVectors(t) {
		have[v.decoder+": "+v.name] = true
	}
	for _, s := range samples() {
		if s.decoder != "block" && s.decoder != "delta" && !have[s.decoder+": "+s.name] {
			t.Errorf("no vector for %s: %s", s.decoder, s.name)
		}
	}
}

func TestVectorLoaderRefuses(t *testing.T) {
	const head = "decoder: name\nname: n\n"
	for name, text := range map[string]string{
		"nothing":         "# only a comment\n\n",
		"no decoder":      "name: n\nexpect: ok\n00\n",
		"unknown decoder": "decoder: x\nname: n\nexpect: ok\n00\n",
		"unknown header":  head + "expect: ok\ncolour: red\n00\n",
		"no class":        head + "00\n",
		"unknown class":   head + "expect: fine\n00\n",
		"no reason":       head + "expect: malformed\n00\n",
		"bad hex":         head + "expect: ok\n0g\n",
	} {
		if v, err := parseVectors("f.txt", text); err == nil {
			t.Errorf("%s is accepted as %+v", name, v)
		}
	}
}
