package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
	"time"

	"github.com/ckptd/ckptd/backend/mem"
	"github.com/ckptd/ckptd/crypto"
	"github.com/ckptd/ckptd/engine"
)

// Result is the outcome of a run.
type Result struct {
	Plan     Plan
	Ops      int
	Gates    int
	Crashes  int
	Trace    uint64   // equal for equal plans
	Problems []string // faults of the store; the run ends after the first round with any
	Log      []string // all decisions, if requested
	Kinds    map[string]int
	Done     map[string]bool // names of the operations
	Profile  string
	Round    int // last round
	Rounds   int
}

const tenant, user = "acme", "alice"

// world is a store, its users, and the knowledge about it.
type world struct {
	plan  Plan
	prof  profile
	opts  engine.Options
	data  *mem.Store
	disk  *disk
	store *engine.Store
	sched *scheduler
	kinds []*kind

	model  *model
	round  int
	calls  []*call // of the round
	result *Result
	watch  *watching
}

// call is an operation of a client with its duration, from the step inv to the step res.
type call struct {
	name     string
	ref      engine.Ref
	act      action
	kind     string
	inv, res int
	from, to time.Time // by the clock
	calls    int64     // backend calls so far

	cancel  context.CancelFunc
	endAt   int  // steps after inv at which its context ends; negative: never
	ended   bool // its context has ended
	settled bool
	unknown bool // it was cut off by a crash
	err     error
	seen    chan struct{}
}

type callKey struct{}

// Run runs a plan. No other test may run at the same time, because it takes over all randomness.
func Run(t *testing.T, p Plan, verbose bool) *Result {
	cryptotest.SetGlobalRandom(t, p.Seed)
	pr := p.profile()
	r := &Result{Plan: p, Kinds: map[string]int{}, Done: map[string]bool{}, Profile: pr.name, Rounds: pr.rounds}
	stop := watchdog(p)
	defer stop()
	synctest.Test(t, func(*testing.T) {
		w := newWorld(p, r, verbose)
		w.run()
	})
	return r
}

// watchdog ends the process if a run hangs because a mutex is held across a wait, which a bubble
// cannot detect.
func watchdog(p Plan) (stop func()) {
	timer := time.AfterFunc(5*time.Minute, func() {
		panic(fmt.Sprintf("%v hangs: somebody waits for a lock that is held while its holder waits", p))
	})
	return func() { timer.Stop() }
}

func newWorld(p Plan, r *Result, verbose bool) *world {
	w := &world{plan: p, prof: p.profile(), data: mem.Open(), kinds: kinds(), result: r, model: newModel()}
	w.sched = &scheduler{seed: p.Seed, shuffle: chance(500, p.Seed, "shuffle"), gates: map[string]*gate{},
		running: map[string]*call{}, owners: map[string]*call{}, decide: w.decide, settle: w.settle, crash: w.crash}
	if verbose {
		w.sched.log = func(format string, args ...any) { r.Log = append(r.Log, fmt.Sprintf(format, args...)) }
	}
	root, err := crypto.GenerateRootKey()
	if err != nil {
		panic(err)
	}
	w.opts = engine.Options{Root: root, Keystore: crypto.NewMemKeystore(), Create: true, CacheBytes: w.prof.cache, Migrations: migrations}
	return w
}

// run runs rounds until one has a problem.
func (w *world) run() {
	w.store = w.boot()
	w.opts.Create = false
	if err := w.store.User(tenant, user).Upkeep().Create(context.Background()); err != nil {
		panic(err)
	}
	for w.round = range w.prof.rounds {
		w.result.Round = w.round
		w.work()
		w.judge()
		w.result.Gates, w.result.Trace = w.sched.opened, w.sched.trace
		if len(w.result.Problems) > 0 {
			break
		}
		time.Sleep(time.Duration(hash(w.plan.Seed, "between", fmt.Sprint(w.round))%3) * time.Hour)
	}
	w.store.Close()
}

// boot opens the store like a new process.
func (w *world) boot() *engine.Store {
	w.disk = &disk{inner: w.data, s: w.sched, shared: w.prof.shared}
	w.disk.open.Store(true)
	s, err := engine.Open(context.Background(), w.disk, w.opts)
	if err != nil {
		panic(fmt.Sprintf("opening the store: %v", err))
	}
	return s
}

// work runs a round of concurrent clients.
func (w *world) work() {
	s := w.sched
	s.crashed, s.crashAt, s.faults = false, 0, 0
	name := fmt.Sprintf("r%d", w.round)
	if chance(w.prof.crash*10, w.plan.Seed, name, "crash") {
		s.crashAt = s.step + 1 + int(hash(w.plan.Seed, name, "crash at")%300)
	}
	w.calls = nil
	w.disk.open.Store(false)
	clients := w.prof.clients
	if w.plan.Serial {
		clients = 1
	}
	s.clients = clients
	for c := range clients {
		go w.client(fmt.Sprintf("%sc%d", name, c))
	}
	w.beginWatch(name)
	s.run()
	w.endWatch()
	w.disk.open.Store(true)
	if s.stuck != "" {
		w.problem("stuck: %s", s.stuck)
	}
	if s.crashed {
		w.result.Crashes++
		w.store.Close()
		w.store = w.boot()
	} else if chance(250, w.plan.Seed, name, "reopen") {
		if err := w.store.Close(); err != nil {
			w.problem("closing: %v", err)
		}
		w.store = w.boot()
	}
}

// client runs the operations of one client in a round, or of all clients if the plan is serial.
func (w *world) client(name string) {
	defer func() {
		w.sched.mu.Lock()
		w.sched.clients--
		w.sched.mu.Unlock()
	}()
	for i := range w.prof.ops {
		names := []string{fmt.Sprintf("%so%d", name, i)}
		if w.plan.Serial {
			names = nil
			for c := range w.prof.clients {
				names = append(names, fmt.Sprintf("r%dc%do%d", w.round, c, i))
			}
		}
		for _, op := range names {
			if !w.plan.runs(op) {
				continue
			}
			if v, _ := w.sched.park(context.Background(), op, 's'); v == dead {
				return
			}
			w.do(op)
		}
	}
}

// do generates an operation and runs it. Only one goroutine is here at a time.
func (w *world) do(name string) {
	g := &gen{w: w, name: name, seed: hash(w.plan.Seed, name), rand: rand.New(rand.NewPCG(hash(w.plan.Seed, name), 1))}
	k := g.kind(w.kinds)
	act := k.make(g)
	if act == nil {
		return
	}
	c := act.base()
	c.name, c.kind, c.act, c.seen, c.endAt = name, k.name, act, make(chan struct{}), -1
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ctx = context.WithValue(ctx, callKey{}, c)
	c.cancel = cancel
	if chance(w.prof.end, w.plan.Seed, name, "end") {
		c.endAt = int(hash(w.plan.Seed, name, "end at") % 24)
	}
	c.from = time.Now()
	id := goroutine()
	s := w.sched
	s.mu.Lock()
	c.inv = s.step
	s.running[name], s.owners[id] = c, c
	w.calls = append(w.calls, c)
	s.note(name + " " + describe(c))
	s.mu.Unlock()
	c.err = act.run(ctx, w.store)
	s.mu.Lock()
	delete(s.running, name)
	delete(s.owners, id)
	s.finished = append(s.finished, c)
	s.mu.Unlock()
	<-c.seen
}

func describe(c *call) string {
	text := fmt.Sprintf("%s %s/%s %v", c.kind, c.ref.Thread, c.ref.Namespace, c.act)
	if len(text) > 400 {
		text = text[:400] + "…"
	}
	return text
}

// settle records the outcome of a call.
func (w *world) settle(c *call) {
	c.to = time.Now()
	c.unknown = w.sched.crashed
	w.result.Ops++
	w.result.Done[c.name] = true
	outcome := "ok"
	if c.unknown {
		outcome = "cut off"
	} else if c.err != nil {
		outcome = "refused"
	}
	w.result.Kinds[c.kind+" "+outcome]++
	if c.unknown { // how it ends no longer matters and can vary
		w.sched.note(fmt.Sprintf("%s: %s", c.name, outcome))
	} else {
		w.sched.note(strings.TrimSpace(fmt.Sprintf("%s: %s %v%s", c.name, outcome, firstLine(c.err), shown(c))))
	}
	if a, ok := c.act.(*script); ok {
		a.settle(w.model)
	}
	if c.err == nil && !c.unknown {
		if l, ok := c.act.(learner); ok {
			l.learn(w.model)
		}
	}
}

// shown describes the first checkpoints in an answer.
func shown(c *call) (text string) {
	w, ok := c.act.(witness)
	if !ok {
		return ""
	}
	for i, cp := range w.saw() {
		if i == 8 {
			return text + " …"
		}
		text += fmt.Sprintf(" [%d.%d on %d %s step %d %s]", cp.Generation, cp.Seq, cp.ParentSeq, cp.ID, cp.Step, cp.Status)
	}
	return text
}

func firstLine(err error) string {
	if err == nil {
		return ""
	}
	text, _, _ := strings.Cut(err.Error(), "\n")
	return text
}

// decide returns the fate of the call at a gate, and lets time pass there now and then.
func (w *world) decide(g *gate) verdict {
	seed := w.plan.Seed
	if w.prof.pass > 0 && chance(4, seed, g.name, "hours") {
		time.Sleep(time.Duration(hash(seed, g.name, "long") % uint64(w.prof.pass)))
	} else if chance(60, seed, g.name, "time") {
		time.Sleep(time.Duration(hash(seed, g.name, "pass")%40) * time.Millisecond)
	}
	switch g.kind {
	case 's', 'a':
		return pass
	case 'w':
		if chance(w.prof.doubt, seed, g.name, "doubt") {
			return lost + verdict(hash(seed, g.name, "applied")%2)
		}
	}
	if chance(w.prof.fail, seed, g.name, "fail") {
		return fails
	}
	return pass
}

func (w *world) crash() { w.disk.dead.Store(true) }

// problem records something that must not happen.
func (w *world) problem(format string, args ...any) {
	if len(w.result.Problems) < 20 {
		w.result.Problems = append(w.result.Problems, fmt.Sprintf("round %d: ", w.round)+fmt.Sprintf(format, args...))
	}
}

// injected reports whether the simulation may have caused an error.
func (w *world) injected(err error) bool {
	return errors.Is(err, errInjected) || errors.Is(err, errCrashed)
}
