package redact

import (
	"math/rand/v2"
	"strings"
	"testing"
)

func TestText(t *testing.T) {
	r := Default()
	for _, c := range []struct{ in, want string }{
		{"write to alice.o'neil+x@mail.example.co.uk.", "write to [REDACTED:email]."},
		{"jürgen@müller.example, 用户@例子.广告", "[REDACTED:email], [REDACTED:email]"},
		{"?to=bob%40example.org&x=1", "?to=[REDACTED:email]&x=1"},
		{`literal\nbob@example.org\n`, `literal\n[REDACTED:email]\n`},
		{"card 4111-1111-1111-1111 exp 12/25", "card [REDACTED:card] exp 12/25"},
		{"amex 3782 822463 10005.", "amex [REDACTED:card]."},
		{"de89 3704 0044 0532 0130 00 and GB82WEST12345698765432", "[REDACTED:iban] and [REDACTED:iban]"},
		{"ssn 078-05-1120", "ssn [REDACTED:us-ssn]"},
		{"my social security number is 078051120", "my social security number is [REDACTED:us-ssn]"},
		{"CPF 529.982.247-25, CNPJ 11.222.333/0001-81", "CPF [REDACTED:br-cpf], CNPJ [REDACTED:br-cnpj]"},
		{"AHV 756.9217.0769.85", "AHV [REDACTED:ch-ahv]"},
		{"NIR 2 55 08 14 168 025 38", "NIR [REDACTED:fr-nir]"},
		{"Aadhaar 2345 6789 0124", "Aadhaar [REDACTED:in-aadhaar]"},
		{"DNI 12345678Z, NIE X1234567L", "DNI [REDACTED:es-nif], NIE [REDACTED:es-nif]"},
		{"RSSMRA85T10A562S", "[REDACTED:it-codice-fiscale]"},
		{"BSN 111222333", "BSN [REDACTED:nl-bsn]"},
		{"NINO AB123456C", "NINO [REDACTED:uk-nino]"},
		{"PESEL 44051401359", "PESEL [REDACTED:pl-pesel]"},
		{"Steuer-ID 86095742719", "Steuer-ID [REDACTED:de-tax-id]"},
		{"SIN 046 454 286", "SIN [REDACTED:ca-sin]"},
		{"personnummer 811228-9874", "personnummer [REDACTED:se-personnummer]"},
		{"hetu 131052-308T", "hetu [REDACTED:fi-hetu]"},
		{"身份证 11010519491231002X", "身份证 [REDACTED:cn-resident-id-x]"},
		{"PAN ABCPE1234F", "PAN [REDACTED:in-pan]"},
		{"from 10.1.2.3:8080, 2001:db8::8a2e:370:7334 and 00:1b:44:11:3a:b7", "from [REDACTED:ipv4]:8080, [REDACTED:ipv6] and [REDACTED:mac]"},
		{"+1 (415) 555-0132 ext. 12", "[REDACTED:phone]"},
		{"Tel. 030/1234567 oder 0171 2345678", "Tel. [REDACTED:phone] oder [REDACTED:phone]"},
		{"01 23 45 67 89; +44 20 7946 0958; 03-1234-5678; 8 (495) 123-45-67", "[REDACTED:phone]; [REDACTED:phone]; [REDACTED:phone]; [REDACTED:phone]"},
		{"电话：13812345678", "电话：[REDACTED:phone]"},
		{"postgres://app:s3cr3t@db:5432/x?sslmode=on", "postgres://app:[REDACTED:url-credentials]@db:5432/x?sslmode=on"},
		{"PGPASSWORD=tr0ub4dor psql -h db", "PGPASSWORD=[REDACTED:password] psql -h db"},
		{"curl -u admin:hunter22 https://x.example", "curl -u admin:[REDACTED:curl-user] https://x.example"},
		{"Authorization: Basic YWRtaW46aHVudGVyMjI=", "Authorization: Basic [REDACTED:authorization-header]"},
		{"-----BEGIN RSA PRIVATE KEY-----\nMIIEowIBAAKCAQEA\n-----END RSA PRIVATE KEY-----\nx", "[REDACTED:private-key]\nx"},
		{`"-----BEGIN PRIVATE KEY-----\nMIIEowIBAAKCAQEAMIIEowIBAAKCAQEA\n`, `"[REDACTED:private-key]`},
		{"the password is Tr0ub4dor&3!", "the password is [REDACTED:password]!"},
		{"Server=db;User Id=app;Password=p4ss-W0rd;", "Server=db;User Id=app;Password=[REDACTED:password];"},
		{"password=Sup3rS3cr3tPw[REDACTED:email]", "password=[REDACTED:password][REDACTED:email]"},
		{"password=[REDACTED:email]Sup3rS3cr3tPw", "password=[REDACTED:email][REDACTED:password]"},
		{"-----BEGIN PRIVATE KEY-----\nMIIEowIB[REDACTED:email]AAKCAQEA\n-----END PRIVATE KEY-----", "[REDACTED:private-key][REDACTED:email][REDACTED:private-key]"},
		{"postgres://[REDACTED:email]:pw1@host", "postgres://[REDACTED:email]:[REDACTED:url-credentials]@host"},
		{"https://u:[REDACTED:email]s3cr3t@host", "https://u:[REDACTED:email][REDACTED:url-credentials]@host"},
		{"[card:4539578763621486]", "[card:[REDACTED:card]]"},
		{"mongodb+srv://u:p4ssw0rd@c.mongodb.net/x", "mongodb+srv://u:[REDACTED:url-credentials]@c.mongodb.net/x"},
		{"postgres://al@example.com:pw1@db.example.com", "postgres://[REDACTED:email]:[REDACTED:url-credentials]@db.example.com"},
		{"https://ghp_0123456789abcdefghijABCDEFGHIJKLMNOP:x-oauth-basic@github.com/a", "https://[REDACTED:github-token]:[REDACTED:url-credentials]@github.com/a"},
		{"Passwort: Sommer2024!", "Passwort: [REDACTED:password]"},
		{"postgres://u:p@h/db", "postgres://u:[REDACTED:url-credentials]@h/db"},
		{`password="` + strings.Repeat("x8", 500) + `"`, `password="[REDACTED:password]"`},
		{"ticket in base64: Ym9iQGV4YW1wbGUub3Jn", "ticket in base64: W1JFREFDVEVEOmVtYWlsXQ"},
	} {
		out := redacted(t, r, Input{Type: "text", Data: []byte(c.in)})
		if got := string(out.Data); got != c.want {
			t.Errorf("%q\n  became   %q\n  want     %q", c.in, got, c.want)
		}
	}
}

func TestLookalikes(t *testing.T) {
	r := Default()
	for _, text := range []string{
		"commit ea1402bc4f27311c55d06e318cef7d22ed1f3343", "sha256:ea1402bc4f27311c55d06e318cef7d22ed1f33431a33ada16db71c4177283103",
		"3f2a9c8e-1b2d-4c3e-9f0a-1b2c3d4e5f60", "v1.2.3-rc.4+build.5", "version 1.2.3.4", "Chrome/120.0.6099.109 Safari/537.36",
		"pkg==1.2.3.4", "foo-1.2.3.4.tar.gz", "order 112-1234567-1234567", "Order #4155550132", "2024-05-20T10:00:00.123456+02:00", "20.05.2024 10:30",
		"1716200000000", "order 4111111111111112", "127.0.0.1:8080", "::1", "255.255.255.0", "std::vector<int>::iterator", "a::b", "12:34:56",
		"logo@2x.png", "@app.route('/x')", "pkg@1.2.3", "git@github.com:org/repo.git", "$1234.56", "12,345,678", "0.000000123", "3.14159265",
		"max_tokens=4096", "password: str", "password = input()", "token: ${TOKEN}", "api_key = os.environ['X']", "the password field is required",
		"\"type\": \"password\"", "secretary: Jane", "ISBN 978-3-16-148410-0", "00:00:00:00:00:00", "-----BEGIN CERTIFICATE-----", "BEGIN PRIVATE KEY",
		"#ff00aa", "10 000 000", "192.168.1", "if x == 1234567890 {", "0x7fff5fbff8c0", "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJ",
		"AAAAB3NzaC1yc2EAAAADAQABAAABAQC7", "lorem ipsum dolor sit amet", "https://example.com/a/b/c?d=e#f", "call me maybe", "[REDACTED:email] [email:0123456789abcdef]",
	} {
		if out := redacted(t, r, Input{Type: "text", Data: []byte(text)}); out.Changed {
			t.Errorf("%q became %q", text, out.Data)
		}
	}
}

// Terminal colors are not part of the words around them.
func TestColours(t *testing.T) {
	r := Default()
	for _, escape := range []string{"\x1b", `\033`, `\x1b`, `\x1B`, `\u001b`, `\e`} {
		for _, c := range []struct{ value, want string }{
			{"ghp_0123456789abcdefghijABCDEFGHIJKLMNOP", "[REDACTED:github-token]"},
			{"AKIAQYLPMN5HHHFPZAM2", "[REDACTED:aws-access-key-id]"},
			{"4111 1111 1111 1111", "[REDACTED:card]"},
			{"4111111111111111", "[REDACTED:card]"},
			{"bob@example.org", "[REDACTED:email]"},
			{"GB82WEST12345698765432", "[REDACTED:iban]"},
			{"10.1.2.3", "[REDACTED:ipv4]"},
		} {
			for _, colour := range []string{"[m", "[31m", "[0;36m", "[38;5;208m"} {
				in := "see " + escape + colour + c.value + escape + "[0m"
				want := "see " + escape + colour + c.want + escape + "[0m"
				if out := redacted(t, r, Input{Type: "text", Data: []byte(in)}); string(out.Data) != want {
					t.Errorf("%q became %q", in, out.Data)
				}
			}
		}
		in := escape + "[36mpassword" + escape + "[0m=" + escape + "[1mhunter-2xy" + escape + "[0m"
		want := escape + "[36mpassword" + escape + "[0m=" + escape + "[1m[REDACTED:password]" + escape + "[0m"
		if out := redacted(t, r, Input{Type: "text", Data: []byte(in)}); string(out.Data) != want {
			t.Errorf("%q became %q", in, out.Data)
		}
	}
}

// The automaton finds the same as a separate search for each word.
func TestAutomaton(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	random := func(n int) string { return pick(rng, n, "abAB01-é") }
	for range 200 {
		var words []string
		for range 1 + rng.IntN(8) {
			words = append(words, strings.ToLower(pick(rng, 1+rng.IntN(4), "abAB-")))
		}
		a, err := newAutomaton(words)
		if err != nil {
			t.Fatal(err)
		}
		text := random(rng.IntN(300))
		type place struct{ word, end int }
		want, got := map[place]bool{}, map[place]bool{}
		for i, w := range words {
			for end := len(w); end <= len(text); end++ {
				if strings.EqualFold(text[end-len(w):end], w) {
					want[place{i, end}] = true
				}
			}
		}
		var h hits
		last := 0
		for _, hit := range a.scan(&h, []byte(text)) {
			if hit.end < last {
				t.Fatalf("%q in %q: out of order", words, text)
			}
			last = hit.end
			for _, w := range a.at(hit.state) {
				got[place{int(w), hit.end}] = true
			}
		}
		if len(got) != len(want) {
			t.Fatalf("%q in %q: %v, want %v", words, text, got, want)
		}
		for p := range want {
			if !got[p] {
				t.Fatalf("%q in %q: missed %v", words, text, p)
			}
		}
	}
}

// Applying edits in sequence equals applying the result of onto.
func TestOnto(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 500 {
		first := []byte(pick(rng, rng.IntN(30), lowers))
		var edits []edit
		text := first
		for range 1 + rng.IntN(4) {
			var more []edit
			for at := 0; at < len(text); {
				start := at + rng.IntN(len(text)-at)
				end := start
				for end < len(text) && end-start < 4 && isLower(text[end]) { // the result of an edit stays
					end++
				}
				if end > start {
					more = append(more, edit{start, end, []byte(pick(rng, 1+rng.IntN(5), uppers))})
				}
				at = end + 1 + rng.IntN(4)
			}
			edits = onto(edits, more)
			text = apply(text, more)
			if got := apply(first, edits); string(got) != string(text) {
				t.Fatalf("%q: %q, want %q", first, got, text)
			}
		}
	}
}
