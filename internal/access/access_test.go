package access

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	ckptdv1 "github.com/ckptd/ckptd/api/ckptd/v1"
	"github.com/ckptd/ckptd/engine"
)

var (
	now   = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	later = now.Add(time.Hour)
)

// The permissions are called as in the rules of the API.
func TestPermissionOf(t *testing.T) {
	for n, name := range ckptdv1.Permission_name {
		want := strings.ToLower(strings.TrimPrefix(name, "PERMISSION_"))
		if n == 0 {
			want = ""
		}
		if got := PermissionOf(ckptdv1.Permission(n)); got.String() != want {
			t.Errorf("%s is %q", name, got)
		}
	}
}

func TestRoles(t *testing.T) {
	for role, want := range map[Role]string{
		Reader:   "read inspect",
		Approver: "read inspect annotate",
		Writer:   "read inspect write annotate",
		Auditor:  "inspect audit",
		Admin:    "read inspect write annotate manage issue audit",
		"":       "",
		"root":   "",
	} {
		var got []string
		for i, name := range []string{"read", "inspect", "write", "annotate", "manage", "issue", "audit"} {
			if role.Permissions()&(1<<i) != 0 {
				got = append(got, name)
			}
		}
		if s := strings.Join(got, " "); s != want {
			t.Errorf("%q may %s, want %s", role, s, want)
		}
	}
	for _, r := range Roles() {
		if r.Permissions() == 0 {
			t.Errorf("%s may nothing", r)
		}
	}
}

func TestMay(t *testing.T) {
	for _, tt := range []struct {
		name                 string
		grant                Grant
		p                    Permission
		tenant, user, thread string
		want                 bool
	}{
		{"own thread", Grant{Writer, "acme", "alice", "", time.Time{}}, Write, "acme", "alice", "t", true},
		{"all own threads", Grant{Writer, "acme", "alice", "", time.Time{}}, Write, "acme", "alice", "", true},
		{"not of the role", Grant{Reader, "acme", "alice", "", time.Time{}}, Write, "acme", "alice", "t", false},
		{"two permissions, one of them missing", Grant{Reader, "acme", "alice", "", time.Time{}}, Read | Write, "acme", "alice", "t", false},
		{"other user", Grant{Writer, "acme", "alice", "", time.Time{}}, Write, "acme", "bob", "t", false},
		{"user whose name goes on", Grant{Writer, "acme", "alice", "", time.Time{}}, Write, "acme", "alice2", "t", false},
		{"other tenant", Grant{Writer, "acme", "alice", "", time.Time{}}, Write, "umbrella", "alice", "t", false},
		{"whole tenant with one user", Grant{Writer, "acme", "alice", "", time.Time{}}, Write, "acme", "", "", false},
		{"whole store with one tenant", Grant{Writer, "acme", "*", "", time.Time{}}, Write, "", "", "", false},
		{"thread of nobody", Grant{Writer, "acme", "alice", "", time.Time{}}, Write, "acme", "", "t", false},
		{"no tenant", Grant{Writer, "acme", "alice", "", time.Time{}}, Write, "", "alice", "t", false},

		{"within the prefix", Grant{Writer, "acme", "alice", "support-", time.Time{}}, Write, "acme", "alice", "support-1", true},
		{"the prefix itself", Grant{Writer, "acme", "alice", "support-", time.Time{}}, Write, "acme", "alice", "support-", true},
		{"outside the prefix", Grant{Writer, "acme", "alice", "support-", time.Time{}}, Write, "acme", "alice", "sales-1", false},
		{"shorter than the prefix", Grant{Writer, "acme", "alice", "support-", time.Time{}}, Write, "acme", "alice", "support", false},
		{"whole user with a prefix", Grant{Writer, "acme", "alice", "support-", time.Time{}}, Write, "acme", "alice", "", false},
		{"whole tenant with a prefix", Grant{Writer, "acme", "*", "support-", time.Time{}}, Write, "acme", "", "", false},
		{"whole store with a prefix", Grant{Admin, "*", "*", "support-", time.Time{}}, Manage, "", "", "", false},

		{"every user", Grant{Reader, "acme", "*", "", time.Time{}}, Read, "acme", "bob", "t", true},
		{"user called *", Grant{Reader, "acme", "*", "", time.Time{}}, Read, "acme", "*", "t", true},
		{"whole tenant", Grant{Reader, "acme", "*", "", time.Time{}}, Inspect, "acme", "", "", true},
		{"whole store", Grant{Admin, "*", "*", "", time.Time{}}, Manage, "", "", "", true},
		{"every tenant", Grant{Admin, "*", "*", "", time.Time{}}, Read, "umbrella", "bob", "t", true},

		{"until later", Grant{Reader, "acme", "alice", "", later}, Read, "acme", "alice", "t", true},
		{"until now", Grant{Reader, "acme", "alice", "", now}, Read, "acme", "alice", "t", false},
		{"unknown role", Grant{"root", "*", "*", "", time.Time{}}, Read, "acme", "alice", "t", false},
	} {
		c := &Caller{Grants: []Grant{{Role: Reader, Tenant: "none", User: "none"}, tt.grant}}
		if got := c.May(tt.p, tt.tenant, tt.user, tt.thread, now); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
	if (&Caller{}).May(Read, "a", "b", "c", now) {
		t.Error("a caller without grants may read")
	}
}

// Grants do not add up: a permission and a scope must come from the same one.
func TestGrantsDoNotMix(t *testing.T) {
	c := &Caller{Grants: []Grant{{Role: Writer, Tenant: "acme", User: "alice"}, {Role: Reader, Tenant: "acme", User: "bob"}}}
	if c.May(Write, "acme", "bob", "t", now) || !c.May(Write, "acme", "alice", "t", now) || !c.May(Read, "acme", "bob", "t", now) {
		t.Error("grants were mixed")
	}
}

func TestPrefixes(t *testing.T) {
	c := &Caller{Grants: []Grant{
		{Role: Writer, Tenant: "acme", User: "alice", ThreadPrefix: "a"},
		{Role: Reader, Tenant: "acme", User: "alice", ThreadPrefix: "b"},
		{Role: Reader, Tenant: "acme", User: "alice", ThreadPrefix: "old", Expires: now},
		{Role: Reader, Tenant: "acme", User: "*", ThreadPrefix: "c"},
		{Role: Reader, Tenant: "acme", User: "bob"},
	}}
	for _, tt := range []struct {
		p            Permission
		tenant, user string
		want         []string
		all          bool
	}{
		{Read, "acme", "alice", []string{"a", "b", "c"}, false},
		{Write, "acme", "alice", []string{"a"}, false},
		{Read, "acme", "bob", nil, true},
		{Read, "acme", "", []string{"c"}, false},
		{Read, "umbrella", "alice", nil, false},
		{Manage, "acme", "alice", nil, false},
	} {
		got, all := c.Prefixes(tt.p, tt.tenant, tt.user, now)
		if all != tt.all || !cmp.Equal(got, tt.want) {
			t.Errorf("%v of %s/%s: %q %v, want %q %v", tt.p, tt.tenant, tt.user, got, all, tt.want, tt.all)
		}
	}
}

func TestOnly(t *testing.T) {
	for _, tt := range []struct {
		name         string
		grants       []Grant
		tenant, user string
	}{
		{"none", nil, "", ""},
		{"one", []Grant{{Reader, "acme", "alice", "", later}}, "acme", "alice"},
		{"twice the same", []Grant{{Reader, "acme", "alice", "a", later}, {Writer, "acme", "alice", "b", later}}, "acme", "alice"},
		{"two users", []Grant{{Reader, "acme", "alice", "", later}, {Reader, "acme", "bob", "", later}}, "acme", ""},
		{"two tenants", []Grant{{Reader, "acme", "alice", "", later}, {Reader, "umbrella", "alice", "", later}}, "", ""},
		{"two tenants, then the first", []Grant{{Reader, "acme", "alice", "", later}, {Reader, "umbrella", "alice", "", later},
			{Reader, "acme", "alice", "", later}}, "", ""},
		{"expired", []Grant{{Reader, "umbrella", "bob", "", now}, {Reader, "acme", "alice", "", later}}, "acme", "alice"},
		{"every user", []Grant{{Reader, "acme", "*", "", later}}, "acme", ""},
		{"one and every user", []Grant{{Reader, "acme", "alice", "", later}, {Reader, "acme", "*", "", later}}, "acme", ""},
		{"everything", []Grant{Everything()}, "", ""},
	} {
		c := &Caller{Grants: tt.grants}
		if tenant, user := c.Only(now); tenant != tt.tenant || user != tt.user {
			t.Errorf("%s: %q %q, want %q %q", tt.name, tenant, user, tt.tenant, tt.user)
		}
	}
}

func TestMayGive(t *testing.T) {
	own := Grant{Admin, "acme", "*", "", later}
	for _, tt := range []struct {
		name       string
		own, given Grant
		give, take bool
	}{
		{"within", own, Grant{Reader, "acme", "alice", "x", now.Add(time.Minute)}, true, true},
		{"the same", own, own, true, true},
		{"longer", own, Grant{Reader, "acme", "alice", "", later.Add(1)}, false, true},
		{"for ever", own, Grant{Reader, "acme", "alice", "", time.Time{}}, false, true},
		{"other tenant", own, Grant{Reader, "umbrella", "alice", "", now.Add(time.Minute)}, false, false},
		{"every tenant", own, Grant{Reader, "*", "*", "", now.Add(time.Minute)}, false, false},
		{"from one user to all", Grant{Admin, "acme", "alice", "", time.Time{}}, Grant{Reader, "acme", "*", "", time.Time{}}, false, false},
		{"out of the prefix", Grant{Admin, "acme", "alice", "ab", time.Time{}}, Grant{Reader, "acme", "alice", "a", time.Time{}}, false, false},
		{"into the prefix", Grant{Admin, "acme", "alice", "a", time.Time{}}, Grant{Reader, "acme", "alice", "ab", time.Time{}}, true, true},
		{"no admin", Grant{Writer, "acme", "*", "", time.Time{}}, Grant{Reader, "acme", "alice", "", time.Time{}}, false, false},
		{"expired", Grant{Admin, "*", "*", "", now}, Grant{Reader, "acme", "alice", "", now}, false, false},
		{"everything", Everything(), Everything(), true, true},
	} {
		c := &Caller{Grants: []Grant{tt.own}}
		if give, take := c.MayGive(tt.given, now), c.MayTake(tt.given, now); give != tt.give || take != tt.take {
			t.Errorf("%s: give %v, take %v", tt.name, give, take)
		}
	}
}

// Nobody can give what they may not do themselves: of random grants, whatever the given one allows,
// the own one does.
func TestGivingGivesNoMore(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	pick := func(from ...string) string { return from[rng.IntN(len(from))] }
	random := func() Grant {
		g := Grant{Role: Roles()[rng.IntN(5)], Tenant: pick("a", "b", "*"), User: pick("a", "b", "*"), ThreadPrefix: pick("", "x", "xy")}
		if rng.IntN(2) == 0 {
			g.Expires = now.Add(time.Duration(rng.IntN(3)) * time.Hour)
		}
		return g
	}
	given := 0
	for range 20_000 {
		own, g := &Caller{Grants: []Grant{random(), random()}}, random()
		if !own.MayGive(g, now) {
			continue
		}
		given++
		at := now.Add(time.Duration(rng.IntN(4)) * time.Hour)
		tenant, user, thread := pick("", "a", "b", "c"), pick("", "a", "b", "c"), pick("", "x", "xyz", "y")
		p := Permission(1 << rng.IntN(7))
		if (&Caller{Grants: []Grant{g}}).May(p, tenant, user, thread, at) && !own.May(p, tenant, user, thread, at) {
			t.Fatalf("%+v could give %+v, which allows %b of %q/%q/%q at %v", own.Grants, g, p, tenant, user, thread, at)
		}
	}
	if given < 100 {
		t.Fatalf("only %d grants were given", given)
	}
}

func TestValidate(t *testing.T) {
	long := strings.Repeat("x", 257)
	for _, tt := range []struct {
		name  string
		grant Grant
		want  string // "" is valid
	}{
		{"one user", Grant{Role: Reader, Tenant: "acme", User: "alice"}, ""},
		{"everything", Everything(), ""},
		{"no role", Grant{Tenant: "acme", User: "alice"}, "role"},
		{"unknown role", Grant{Role: "root", Tenant: "acme", User: "alice"}, `"root"`},
		{"no tenant", Grant{Role: Reader, User: "alice"}, "tenant"},
		{"no user", Grant{Role: Reader, Tenant: "acme"}, "user"},
		{"a user of every tenant", Grant{Role: Reader, Tenant: "*", User: "alice"}, "needs a tenant"},
		{"long tenant", Grant{Role: Reader, Tenant: long, User: "alice"}, "256"},
		{"long user", Grant{Role: Reader, Tenant: "acme", User: long}, "256"},
		{"long prefix", Grant{Role: Reader, Tenant: "acme", User: "alice", ThreadPrefix: long}, "256"},
		{"broken UTF-8", Grant{Role: Reader, Tenant: "acme", User: "\xff"}, "UTF-8"},
		{"year", Grant{Role: Reader, Tenant: "acme", User: "alice", Expires: time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)}, "10000"},
	} {
		err := tt.grant.Validate()
		if tt.want == "" && err != nil || tt.want != "" && (!errors.Is(err, engine.ErrInvalid) || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
	}
}
