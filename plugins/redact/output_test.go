package redact

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// Invented tool output: nothing in it is secret or personal, but it resembles many things that are.

// outputs write a block of some lines each.
var outputs = map[string]func(rng *rand.Rand, b *strings.Builder){
	"ls": outputOfLs, "xxd": outputOfXxd, "hexdump": outputOfHexdump, "od": outputOfOd, "ps": outputOfPs, "proc": outputOfProc, "maps": outputOfMaps,
	"git": outputOfGit, "certificate": outputOfCertificate, "csv": outputOfCSV,
}

func fileName(rng *rand.Rand) string {
	return pick(rng, 1+rng.IntN(8), lowers) + []string{"", "-", "_", "."}[rng.IntN(4)] + pick(rng, rng.IntN(9), numbers) +
		[]string{".txt", ".log", ".tar.gz", "", ".so.1.2.34"}[rng.IntN(5)]
}

func outputOfLs(rng *rand.Rand, b *strings.Builder) {
	fmt.Fprintf(b, "total %d\n", rng.IntN(1e6))
	for range 20 {
		if rng.IntN(3) == 0 {
			fmt.Fprintf(b, "%d ", rng.IntN(1e8)) // ls -i
		}
		fmt.Fprintf(b, "-rw-r--r-- %d root root %10d 20%02d-%02d-%02d %02d:%02d:%02d.%09d +0%d00 %s\n", 1+rng.IntN(40), rng.IntN(1<<(4+rng.IntN(33))),
			rng.IntN(30), 1+rng.IntN(12), 1+rng.IntN(28), rng.IntN(24), rng.IntN(60), rng.IntN(60), rng.IntN(1e9), rng.IntN(10), fileName(rng))
	}
}

// executable returns bytes like those of programs: zeros, small numbers, text and noise.
func executable(rng *rand.Rand, n int) []byte {
	data := randomBytes(rng, n)
	for i := 0; i < n; i += 16 {
		part := data[i:min(n, i+16)]
		switch rng.IntN(12) {
		case 0, 1, 2, 3, 4:
			for k := range part {
				if k%8 > 1 {
					part[k] = 0
				}
			}
		case 5:
			copy(part, pick(rng, 16, numbers+". "))
		case 6, 7:
			copy(part, pick(rng, 16, lowers+"\x00"))
		}
	}
	return data
}

func shown(data []byte) string {
	out := slices.Clone(data)
	for i, c := range out {
		if c < ' ' || c > '~' {
			out[i] = '.'
		}
	}
	return string(out)
}

func outputOfXxd(rng *rand.Rand, b *strings.Builder) {
	data := executable(rng, 480+rng.IntN(16))
	at := rng.IntN(1e6) &^ 15
	step := []int{1, 2, 4}[rng.IntN(3)]
	for i := 0; i < len(data); i += 16 {
		line := data[i:min(len(data), i+16)]
		fmt.Fprintf(b, "%08x:", at+i)
		for k := 0; k < len(line); k += step {
			fmt.Fprintf(b, " %x", line[k:min(len(line), k+step)])
		}
		fmt.Fprintf(b, "  %s\n", shown(line))
	}
}

func outputOfHexdump(rng *rand.Rand, b *strings.Builder) {
	data := executable(rng, 480)
	for i := 0; i < len(data); i += 16 {
		fmt.Fprintf(b, "%08x  % x  % x  |%s|\n", i, data[i:i+8], data[i+8:i+16], shown(data[i:i+16]))
	}
}

func outputOfOd(rng *rand.Rand, b *strings.Builder) {
	data := executable(rng, 320)
	for i := 0; i < len(data); i += 16 {
		fmt.Fprintf(b, "%07o", i)
		for k := i; k < i+16; k += 2 {
			fmt.Fprintf(b, " %6d", int16(data[k])|int16(data[k+1])<<8)
		}
		b.WriteString("\n")
	}
}

func outputOfPs(rng *rand.Rand, b *strings.Builder) {
	b.WriteString("USER         PID    PPID %CPU %MEM    VSZ   RSS TTY      STAT START   TIME COMMAND\n")
	for range 20 {
		fmt.Fprintf(b, "root     %7d %7d %4.1f %4.1f %6d %5d pts/%d    Sl+  %02d:%02d   %d:%02d /usr/bin/%s --%s %d\n", rng.IntN(1e6), rng.IntN(1e5), rng.Float64()*100,
			rng.Float64()*10, rng.IntN(1e7), rng.IntN(1e6), rng.IntN(9), rng.IntN(24), rng.IntN(60), rng.IntN(999), rng.IntN(60), fileName(rng), pick(rng, 5, lowers), rng.IntN(1e6))
	}
}

func outputOfProc(rng *rand.Rand, b *strings.Builder) {
	names := []string{"MemTotal", "Cached", "Mapped", "HugePages_Free", "DirectMap2M", "nr_free_pages", "pgfault", "ring_buffer", "cell", "call_function"}
	for _, name := range names {
		fmt.Fprintf(b, "%-15s %8d kB\n", name+":", rng.IntN(1<<(3+rng.IntN(35))))
	}
	for n := range 4 {
		fmt.Fprintf(b, "cpu%d", n)
		for range 10 {
			fmt.Fprintf(b, " %d", rng.IntN(1<<(1+rng.IntN(40))))
		}
		fmt.Fprintf(b, "\n  %2d: %10d %10d   PCI-MSI-edge  nvme0q%d\n", n, rng.IntN(1e9), rng.IntN(1e9), n)
		fmt.Fprintf(b, " 259       %d nvme0n1p%d %d %d %d %d\n", n, n, rng.IntN(1e9), rng.IntN(1e9), rng.IntN(1e9), rng.IntN(1e9))
	}
}

func outputOfMaps(rng *rand.Rand, b *strings.Builder) {
	for range 10 {
		at := rng.Uint64() >> (16 + rng.IntN(20)) &^ 0xfff
		fmt.Fprintf(b, "%08x-%08x r-xp %08x %02x:%02x %d   /usr/lib/%s\n", at, at+uint64(rng.IntN(999))<<12, rng.IntN(1<<20)<<12, rng.IntN(256), rng.IntN(256), rng.IntN(1e8), fileName(rng))
		fmt.Fprintf(b, "   %d: %08X:%04X %08X:%04X 0A %08X:%08X 00:%08X %08X  %4d  0 %d 1 %016x %d\n", rng.IntN(99), rng.Uint32(), rng.IntN(65536), rng.Uint32(),
			rng.IntN(65536), 0, 0, 0, 0, rng.IntN(1000), rng.IntN(1e7), rng.Uint64(), 100)
	}
}

func outputOfGit(rng *rand.Rand, b *strings.Builder) {
	fmt.Fprintf(b, "commit %s\nDate:   Mon May %d %02d:%02d:%02d 2024 +0200\n\n    mend the ring and reach issue %d\n\n", pick(rng, 40, hexes), 1+rng.IntN(28), rng.IntN(24), rng.IntN(60),
		rng.IntN(60), rng.IntN(1e5))
	for range 4 {
		fmt.Fprintf(b, " %s | %d %s\n", fileName(rng), rng.IntN(999), strings.Repeat("+", rng.IntN(30))+strings.Repeat("-", rng.IntN(30)))
		fmt.Fprintf(b, "%d\t%d\tsrc/%s\n", rng.IntN(1e4), rng.IntN(1e4), fileName(rng))
		fmt.Fprintf(b, "diff --git a/%s b/x\nindex %s..%s 100644\n@@ -%d,%d +%d,%d @@ func call()\n", fileName(rng), pick(rng, 10, hexes), pick(rng, 10, hexes), rng.IntN(1e4), rng.IntN(99),
			rng.IntN(1e4), rng.IntN(99))
		fmt.Fprintf(b, "-\tx := []int{%d, %d, %d}\n+\ty := %d.%d // %s\n", rng.IntN(1e9), rng.IntN(1e9), rng.IntN(1e5), rng.IntN(1e4), rng.IntN(1e9), pick(rng, 7, hexes))
	}
}

func outputOfCertificate(rng *rand.Rand, b *strings.Builder) {
	pairs := func(n, line int, indent string) {
		for i, c := range randomBytes(rng, n) {
			switch {
			case i%line == 0:
				b.WriteString("\n" + indent)
			}
			fmt.Fprintf(b, "%02x", c)
			if i < n-1 {
				b.WriteString(":")
			}
		}
	}
	b.WriteString("Certificate:\n    Data:\n        Version: 3 (0x2)\n        Serial Number:")
	pairs([]int{8, 16, 19, 20}[rng.IntN(4)], 20, "            ")
	b.WriteString("\n        Validity\n            Not Before: May 20 10:00:00 2024 GMT\n                Modulus:")
	pairs(257, 15, "                    ")
	b.WriteString("\n                Exponent: 65537 (0x10001)\n    Signature Algorithm: sha256WithRSAEncryption")
	pairs(256, 18, "         ")
	b.WriteString("\n-----BEGIN CERTIFICATE-----\n")
	for range 12 {
		b.WriteString(pick(rng, 64, alnum+"+/") + "\n")
	}
	b.WriteString("-----END CERTIFICATE-----\n")
}

func outputOfCSV(rng *rand.Rand, b *strings.Builder) {
	b.WriteString("id,date,amount,lat,lon,count,ratio,uuid,epoch,code\n")
	for range 15 {
		fmt.Fprintf(b, "%d,2024-%02d-%02d,%.2f,%.6f,%.6f,%d,%d/%d,%s,%d,%s-%d\n", 100000+rng.IntN(9e5), 1+rng.IntN(12), 1+rng.IntN(28), rng.Float64()*1e5, rng.Float64()*180-90,
			rng.Float64()*360-180, rng.IntN(1e9), 1+rng.IntN(99), 1+rng.IntN(9999), uuid(rng), 1700000000+rng.IntN(1e8), pick(rng, 3, uppers), rng.IntN(1e6))
	}
}

// planted generate lines of the same tools that contain a value, at the position of {}.
var planted = []struct {
	line string
	make func(rng *rand.Rand) string
}{
	{"-rw-r--r-- 1 root root 17 2024-05-20 10:00:00.000000000 +0200 {}", func(r *rand.Rand) string { return pick(r, 6, lowers) + "@" + pick(r, 7, lowers) + ".org" }},
	{"Author: Ada <{}>", func(r *rand.Rand) string { return pick(r, 6, lowers) + "." + pick(r, 6, lowers) + "@example.com" }},
	{"root 4711 0.0 0.1 12345 678 ? S 10:00 0:00 curl -H Authorization: Bearer {}", func(r *rand.Rand) string { return "ghp_" + pick(r, 36, alnum) }},
	{"www 812 1.2 0.4 10 20 ? S 10:00 0:01 worker --password={}", func(r *rand.Rand) string { return pick(r, 8, lowers) + pick(r, 3, numbers) + "!" + pick(r, 3, uppers) }},
	{"+\tkey := \"{}\"", func(r *rand.Rand) string { return "AKIA" + pick(r, 16, uppers+"234567") }},
	{"-DATABASE_URL=postgres://app:{}@db/x", func(r *rand.Rand) string { return pick(r, 10, lowers) + pick(r, 4, numbers) }},
	{"101,2024-05-20,12.50,{},1,2", func(r *rand.Rand) string { return fmt.Sprintf("+1 415-555-%04d", r.IntN(1e4)) }},
	{"102,2024-05-20,12.50,{},1,2", func(r *rand.Rand) string { return fmt.Sprintf("(415) 555-%04d", r.IntN(1e4)) }},
	{"phone: {}", func(r *rand.Rand) string { return fmt.Sprintf("415555%04d", r.IntN(1e4)) }},
	{"103,2024-05-20,{},visa", func(r *rand.Rand) string { return cardNumber(r) }},
	{"104,DE,{},ok", func(r *rand.Rand) string { return germanIBAN(r) }},
	{"105,SSN {},ok", func(r *rand.Rand) string {
		return fmt.Sprintf("%03d-%02d-%04d", 100+r.IntN(500), 10+r.IntN(80), 1000+r.IntN(9000))
	}},
	{"tcp 0 0 {}:443 ESTABLISHED", func(r *rand.Rand) string { return fmt.Sprintf("10.%d.%d.%d", r.IntN(256), r.IntN(256), 1+r.IntN(250)) }},
	{"link/ether {} brd", func(r *rand.Rand) string {
		return fmt.Sprintf("02:%02x:%02x:%02x:%02x:ab", r.IntN(256), r.IntN(256), r.IntN(256), r.IntN(256))
	}},
	{"OPENAI_API_KEY={}", func(r *rand.Rand) string { return "sk-proj-" + pick(r, 74, urlSafe) }},
	{"cookie: session={}", webToken},
}

func cardNumber(rng *rand.Rand) string {
	for {
		if n := "4" + pick(rng, 15, numbers); luhn([]byte(n)) {
			return n[:4] + " " + n[4:8] + " " + n[8:12] + " " + n[12:]
		}
	}
}

func germanIBAN(rng *rand.Rand) string {
	for {
		if v := "DE" + pick(rng, 20, numbers); mod97([]byte(v)) {
			return v
		}
	}
}

type span struct{ start, end int }

// toolOutput returns about size bytes of tool output with n values planted on lines of their own.
func toolOutput(rng *rand.Rand, size, n int) (text string, values []span) {
	var tools []string
	for name := range outputs {
		tools = append(tools, name)
	}
	slices.Sort(tools)
	var b strings.Builder
	for i := 0; b.Len() < size; i++ {
		outputs[tools[i%len(tools)]](rng, &b)
		if want := min(n, n*b.Len()/size); len(values) < want {
			for len(values) < want {
				p := planted[len(values)%len(planted)]
				before, after, _ := strings.Cut(p.line, "{}")
				b.WriteString(before)
				value := p.make(rng)
				values = append(values, span{b.Len(), b.Len() + len(value)})
				b.WriteString(value + after + "\n")
			}
		}
	}
	return b.String(), values
}

// In 5 MB of tool output, all planted values are found and hardly anything else.
func TestToolOutput(t *testing.T) {
	text, values := toolOutput(rand.New(rand.NewPCG(12, 5)), 5_000_000, 500)
	s := newScan(Default())
	edits, _ := s.settle([]byte(text), nil)
	out := redacted(t, Default(), Input{Type: "text", Data: []byte(text)})
	if string(apply([]byte(text), edits)) != string(out.Data) {
		t.Fatal("the edits are not what was redacted")
	}
	wrong := 0
	for _, e := range edits {
		k := slices.IndexFunc(values, func(v span) bool { return v.start < e.end && e.start < v.end })
		if k < 0 {
			wrong++
			t.Logf("wrong: %q in %q", text[e.start:e.end], lineAt(text, e.start))
			continue
		}
		if out := values[k]; e.start < out.start || e.end > out.end {
			t.Errorf("more than the value %q goes: %q", text[out.start:out.end], text[e.start:e.end])
		}
		values[k].start = max(values[k].start, e.end)
		if values[k].start >= values[k].end {
			values = slices.Delete(values, k, k+1)
		}
	}
	for _, v := range values {
		t.Errorf("missed %q in %q", text[v.start:v.end], lineAt(text, v.start))
	}
	t.Logf("%d bytes, 500 values, %d hits, %d of them wrong", len(text), len(edits), wrong)
	if wrong*20 > len(edits) {
		t.Errorf("%d of %d hits are wrong", wrong, len(edits))
	}
}

func lineAt(text string, at int) string {
	start := strings.LastIndexByte(text[:at], '\n') + 1
	end := at + strings.IndexByte(text[at:]+"\n", '\n')
	return text[start:end]
}
