package redact

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// Key formats as documented or shown by the services that issue them. Nothing here comes from
// rules.toml.

const (
	lowers  = "abcdefghijklmnopqrstuvwxyz"
	uppers  = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	numbers = "0123456789"
	alnum   = lowers + uppers + numbers
	urlSafe = alnum + "-_"
	hexes   = numbers + "abcdef"
)

func pick(rng *rand.Rand, n int, from string) string {
	var b strings.Builder
	for range n {
		b.WriteByte(from[rng.IntN(len(from))])
	}
	return b.String()
}

func randomBytes(rng *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}

func uuid(rng *rand.Rand) string {
	return strings.Join([]string{pick(rng, 8, hexes), pick(rng, 4, hexes), "4" + pick(rng, 3, hexes), "a" + pick(rng, 3, hexes), pick(rng, 12, hexes)}, "-")
}

func webToken(rng *rand.Rand) string {
	part := func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }
	return part(`{"alg":"HS256","typ":"JWT"}`) + "." + part(fmt.Sprintf(`{"sub":"%d","iat":%d}`, rng.IntN(1e9), 1700000000+rng.IntN(1e8))) + "." +
		base64.RawURLEncoding.EncodeToString(randomBytes(rng, 32))
}

// keys generates a key of each service. Keys without a recognizable form are found only by their
// names: see named.
var keys = []struct {
	service string
	named   string
	make    func(rng *rand.Rand) string
}{
	{"OpenAI", "", func(r *rand.Rand) string { return "sk-" + pick(r, 20, alnum) + "T3BlbkFJ" + pick(r, 20, alnum) }},
	{"OpenAI project", "", func(r *rand.Rand) string {
		return "sk-proj-" + pick(r, 74, urlSafe) + "T3BlbkFJ" + pick(r, 74, urlSafe)
	}},
	{"Anthropic", "", func(r *rand.Rand) string { return "sk-ant-api03-" + pick(r, 93, urlSafe) + "AA" }},
	{"Anthropic admin", "", func(r *rand.Rand) string { return "sk-ant-admin01-" + pick(r, 93, urlSafe) + "AA" }},
	{"Hugging Face", "", func(r *rand.Rand) string { return "hf_" + pick(r, 34, lowers+uppers) }},
	{"Groq", "", func(r *rand.Rand) string { return "gsk_" + pick(r, 52, alnum) }},
	{"Replicate", "", func(r *rand.Rand) string { return "r8_" + pick(r, 37, alnum) }},
	{"Perplexity", "", func(r *rand.Rand) string { return "pplx-" + pick(r, 48, alnum) }},
	{"OpenRouter", "", func(r *rand.Rand) string { return "sk-or-v1-" + pick(r, 64, hexes) }},
	{"LangSmith", "", func(r *rand.Rand) string { return "lsv2_pt_" + pick(r, 32, hexes) + "_" + pick(r, 10, hexes) }},
	{"Cohere", "COHERE_API_KEY", func(r *rand.Rand) string { return pick(r, 40, alnum) }},
	{"Mistral", "MISTRAL_API_KEY", func(r *rand.Rand) string { return pick(r, 32, alnum) }},
	{"GitHub personal", "", func(r *rand.Rand) string { return "ghp_" + pick(r, 36, alnum) }},
	{"GitHub OAuth", "", func(r *rand.Rand) string { return "gho_" + pick(r, 36, alnum) }},
	{"GitHub app", "", func(r *rand.Rand) string { return "ghs_" + pick(r, 36, alnum) }},
	{"GitHub fine-grained", "", func(r *rand.Rand) string { return "github_pat_" + pick(r, 22, alnum) + "_" + pick(r, 59, alnum) }},
	{"GitLab personal", "", func(r *rand.Rand) string { return "glpat-" + pick(r, 20, urlSafe) }},
	{"GitLab deploy", "", func(r *rand.Rand) string { return "gldt-" + pick(r, 20, urlSafe) }},
	{"AWS key id", "", func(r *rand.Rand) string { return "AKIA" + pick(r, 16, uppers+"234567") }},
	{"AWS temporary key id", "", func(r *rand.Rand) string { return "ASIA" + pick(r, 16, uppers+"234567") }},
	{"AWS secret", "AWS_SECRET_ACCESS_KEY", func(r *rand.Rand) string { return base64.StdEncoding.EncodeToString(randomBytes(r, 30)) }},
	{"Google API", "", func(r *rand.Rand) string { return "AIza" + pick(r, 35, urlSafe) }},
	{"Google OAuth secret", "", func(r *rand.Rand) string { return "GOCSPX-" + pick(r, 28, urlSafe) }},
	{"Google access token", "", func(r *rand.Rand) string { return "ya29.a0" + pick(r, 160, urlSafe) }},
	{"Azure storage", "AccountKey", func(r *rand.Rand) string { return base64.StdEncoding.EncodeToString(randomBytes(r, 64)) }},
	{"Azure OpenAI", "AZURE_OPENAI_API_KEY", func(r *rand.Rand) string { return pick(r, 32, hexes) }},
	{"Entra client secret", "", func(r *rand.Rand) string { return pick(r, 3, alnum) + "8Q~" + pick(r, 34, alnum+"-_~.") }},
	{"Slack bot", "", func(r *rand.Rand) string {
		return "xoxb-" + pick(r, 12, numbers) + "-" + pick(r, 13, numbers) + "-" + pick(r, 24, alnum)
	}},
	{"Slack user", "", func(r *rand.Rand) string {
		return "xoxp-" + pick(r, 12, numbers) + "-" + pick(r, 12, numbers) + "-" + pick(r, 13, numbers) + "-" + pick(r, 32, hexes)
	}},
	{"Slack webhook", "", func(r *rand.Rand) string {
		return "https://hooks.slack.com/services/T" + pick(r, 10, uppers+numbers) + "/B" + pick(r, 10, uppers+numbers) + "/" + pick(r, 24, alnum)
	}},
	{"Stripe live", "", func(r *rand.Rand) string { return "sk_live_" + pick(r, 24, alnum) }},
	{"Stripe test", "", func(r *rand.Rand) string { return "sk_test_51" + pick(r, 97, alnum) }},
	{"Stripe restricted", "", func(r *rand.Rand) string { return "rk_live_" + pick(r, 24, alnum) }},
	{"Stripe webhook", "", func(r *rand.Rand) string { return "whsec_" + pick(r, 32, alnum) }},
	{"Twilio key", "", func(r *rand.Rand) string { return "SK" + pick(r, 32, hexes) }},
	{"Twilio auth", "TWILIO_AUTH_TOKEN", func(r *rand.Rand) string { return pick(r, 32, hexes) }},
	{"SendGrid", "", func(r *rand.Rand) string { return "SG." + pick(r, 22, urlSafe) + "." + pick(r, 43, urlSafe) }},
	{"Mailgun", "", func(r *rand.Rand) string { return "key-" + pick(r, 32, hexes) }},
	{"Mailchimp", "", func(r *rand.Rand) string { return pick(r, 32, hexes) + fmt.Sprintf("-us%d", 1+r.IntN(21)) }},
	{"npm", "", func(r *rand.Rand) string { return "npm_" + pick(r, 36, alnum) }},
	{"PyPI", "", func(r *rand.Rand) string { return "pypi-AgEIcHlwaS5vcmc" + pick(r, 150, urlSafe) }},
	{"RubyGems", "", func(r *rand.Rand) string { return "rubygems_" + pick(r, 48, hexes) }},
	{"Docker Hub", "", func(r *rand.Rand) string { return "dckr_pat_" + pick(r, 27, urlSafe) }},
	{"DigitalOcean", "", func(r *rand.Rand) string { return "dop_v1_" + pick(r, 64, hexes) }},
	{"Shopify", "", func(r *rand.Rand) string { return "shpat_" + pick(r, 32, hexes) }},
	{"Linear", "", func(r *rand.Rand) string { return "lin_api_" + pick(r, 40, alnum) }},
	{"Notion", "", func(r *rand.Rand) string { return "ntn_" + pick(r, 46, alnum) }},
	{"Figma", "", func(r *rand.Rand) string { return "figd_" + pick(r, 40, urlSafe) }},
	{"Airtable", "", func(r *rand.Rand) string { return "pat" + pick(r, 14, alnum) + "." + pick(r, 64, hexes) }},
	{"Atlassian", "", func(r *rand.Rand) string {
		return "ATATT3xFfGF0" + pick(r, 170, urlSafe) + "=" + pick(r, 8, numbers+"ABCDEF")
	}},
	{"Postman", "", func(r *rand.Rand) string { return "PMAK-" + pick(r, 24, hexes) + "-" + pick(r, 34, hexes) }},
	{"New Relic", "", func(r *rand.Rand) string { return "NRAK-" + pick(r, 27, uppers+numbers) }},
	{"Datadog", "DD_API_KEY", func(r *rand.Rand) string { return pick(r, 32, hexes) }},
	{"Sentry", "", func(r *rand.Rand) string { return "sntryu_" + pick(r, 64, hexes) }},
	{"Grafana", "", func(r *rand.Rand) string { return "glsa_" + pick(r, 32, alnum) + "_" + pick(r, 8, hexes) }},
	{"Vault", "", func(r *rand.Rand) string { return "hvs." + pick(r, 95, urlSafe) }},
	{"Databricks", "", func(r *rand.Rand) string { return "dapi" + pick(r, 32, hexes) }},
	{"Doppler", "", func(r *rand.Rand) string { return "dp.pt." + pick(r, 43, alnum) }},
	{"PlanetScale", "", func(r *rand.Rand) string { return "pscale_tkn_" + pick(r, 43, urlSafe) }},
	{"Supabase", "", func(r *rand.Rand) string { return "sbp_" + pick(r, 40, hexes) }},
	{"Telegram", "", func(r *rand.Rand) string { return pick(r, 10, "123456789") + ":AA" + pick(r, 33, urlSafe) }},
	{"Cloudflare", "CLOUDFLARE_API_TOKEN", func(r *rand.Rand) string { return pick(r, 40, urlSafe) }},
	{"Heroku", "HEROKU_API_KEY", uuid},
	{"JSON web token", "", webToken},
	{"password", "DB_PASSWORD", func(r *rand.Rand) string {
		return pick(r, 6, lowers) + pick(r, 3, numbers) + pick(r, 1, "!#%*-_") + pick(r, 4, uppers)
	}},
	{"private key", "", func(r *rand.Rand) string {
		lines := []string{"-----BEGIN PRIVATE KEY-----"}
		for range 6 {
			lines = append(lines, base64.StdEncoding.EncodeToString(randomBytes(r, 48)))
		}
		return strings.Join(append(lines, "-----END PRIVATE KEY-----"), "\n")
	}},
}

// places are the contexts of keys in text that agents read and write. {N} is the name of the key.
var places = []struct {
	text string
	json bool // the value is in a JSON string
}{
	{"{N}={}\n", false}, {"export {N}=\"{}\"\n", false}, {"{N}: {}\nother: 1\n", false}, {"{n} = '{}'\n", false},
	{`{"{n}": "{}"}`, true}, {`{"env": {"{N}": "{}"}, "cwd": "/srv"}`, true},
	{`{"role":"tool","content":"{N}={}\n"}`, true},
	{"const {n} = \"{}\";\n", false}, {"{n}=\"{}\",\n", false}, {"os.environ[\"{N}\"] = \"{}\"\n", false},
	{"    {n}: \"{}\"\n", false}, {"--{n} {} --verbose", false},
}

// bare are contexts that say nothing about the value.
var bare = []struct {
	text string
	json bool
}{
	{"I will use {} for that.", false}, {"curl -H 'Authorization: Bearer {}' https://api.example.com/v1", false}, {"({})", false},
	{`{"content": "it says {}, shall I go on?"}`, true}, {"client = Client(\"{}\")", false}, {"{}", false},
}

// notKeys generates values that look like keys, with typical names.
var notKeys = []struct {
	names string
	make  func(rng *rand.Rand) string
}{
	{"commit,sha,revision", func(r *rand.Rand) string { return pick(r, 40, hexes) }},
	{"digest,checksum,etag", func(r *rand.Rand) string { return "sha256:" + pick(r, 64, hexes) }},
	{"md5,hash,trace_id", func(r *rand.Rand) string { return pick(r, 32, hexes) }},
	{"id,request_id,run_id,tool_call_id", uuid},
	{"integrity", func(r *rand.Rand) string { return "sha512-" + base64.StdEncoding.EncodeToString(randomBytes(r, 64)) }},
	{"tool_call_id,call_id", func(r *rand.Rand) string { return "call_" + pick(r, 24, alnum) }},
	{"id,message_id", func(r *rand.Rand) string { return "msg_01" + pick(r, 22, alnum) }},
	{"version,tag", func(r *rand.Rand) string {
		return fmt.Sprintf("v%d.%d.%d-%d-g%s", r.IntN(9), r.IntN(30), r.IntN(30), r.IntN(99), pick(r, 7, hexes))
	}},
	{"image,thumbnail", func(r *rand.Rand) string {
		return "data:image/png;base64," + base64.StdEncoding.EncodeToString(randomBytes(r, 90))
	}},
	{"model", func(r *rand.Rand) string { return "claude-sonnet-4-2025" + pick(r, 4, "01") }},
	{"pod,container", func(r *rand.Rand) string {
		return "api-gateway-" + pick(r, 10, hexes) + "-" + pick(r, 5, lowers+numbers)
	}},
	{"file,path", func(r *rand.Rand) string { return "/static/js/main." + pick(r, 8, hexes) + ".chunk.js" }},
	{"max_tokens,total_tokens,tokens", func(r *rand.Rand) string { return fmt.Sprint(r.IntN(100000)) }},
	{"token_type,password_field,secret_name", func(r *rand.Rand) string { return []string{"bearer", "current-password", "prod/db/main"}[r.IntN(3)] }},
	{"password,api_key,token", func(r *rand.Rand) string {
		return []string{"${DB_PASSWORD}", "os.environ['KEY']", "<your-api-key>", "********", "process.env.API_KEY", "{{ vault.key }}"}[r.IntN(6)]
	}},
	{"public_key", func(r *rand.Rand) string {
		return "ssh-ed25519 " + base64.StdEncoding.EncodeToString(randomBytes(r, 51))
	}},
	{"cache_key", func(r *rand.Rand) string { return "linux-go-" + pick(r, 64, hexes) }},
	{"color", func(r *rand.Rand) string { return "#" + pick(r, 6, hexes) }},
	{"timestamp", func(r *rand.Rand) string { return fmt.Sprint(1700000000000 + r.IntN(1e11)) }},
	{"order_id", func(r *rand.Rand) string {
		return fmt.Sprintf("%d-%d-%d", 100+r.IntN(899), 1e6+r.IntN(8e6), 1e6+r.IntN(8e6))
	}},
	{"code", func(r *rand.Rand) string { return "const apiKey = await getSecret(name)" }},
	{"code", func(r *rand.Rand) string { return "if (token === undefined) { throw new Error('token missing') }" }},
	{"url", func(r *rand.Rand) string {
		return "https://github.com/org/repo/blob/" + pick(r, 40, hexes) + "/README.md"
	}},
	{"wasm", func(r *rand.Rand) string { return hex.EncodeToString(randomBytes(r, 80)) }},
}

func fillIn(text, name, value string, inJSON bool) (filled, written string) {
	if inJSON {
		quoted, err := json.Marshal(value)
		if err != nil {
			panic(err)
		}
		value = string(quoted[1 : len(quoted)-1])
	}
	return strings.NewReplacer("{N}", strings.ToUpper(name), "{n}", strings.ToLower(name), "{}", value).Replace(text), value
}

func TestQualityOfKeys(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	var samples []sample
	for _, k := range keys {
		for i := range 40 {
			name, in := k.named, places
			if name == "" {
				name = []string{"API_KEY", "TOKEN", "SERVICE_TOKEN", "APP_SECRET"}[rng.IntN(4)]
				if i%2 == 0 {
					in = bare
				}
			}
			place := in[rng.IntN(len(in))]
			text, value := fillIn(place.text, name, k.make(rng), place.json)
			if k.service == "private key" && !place.json && strings.HasPrefix(place.text, "curl") {
				continue
			}
			samples = append(samples, sample{Text: text, Locale: k.service, Kind: "key", Value: value})
		}
	}
	for _, n := range notKeys {
		names := strings.Split(n.names, ",")
		for i := range 80 {
			place := places[rng.IntN(len(places))]
			if i%2 == 0 {
				place = bare[rng.IntN(len(bare))]
			}
			if strings.HasPrefix(place.text, "curl") {
				continue // anything after Bearer is a token
			}
			text, _ := fillIn(place.text, names[rng.IntN(len(names))], n.make(rng), place.json)
			samples = append(samples, sample{Text: text, Locale: n.names})
		}
	}
	var examples strings.Builder
	scores := measure(Default(), samples, &examples)
	t.Logf("%d samples\n%s\n%s", len(samples), table(scores), examples.String())
	check(t, scores, []string{"key"}, 0.99, 0.98)
}
