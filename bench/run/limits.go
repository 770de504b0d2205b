package run

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"

	"github.com/ckptd/ckptd/bench/result"
	"github.com/ckptd/ckptd/bench/rival"
	"github.com/ckptd/ckptd/bench/workload"
)

// limits measures the machine's own performance and the rate that ckptd's CPU work allows. Machines
// become slower and faster within minutes, so limits are measured repeatedly in between the rivals.
type limits struct {
	rounds tally     // by name of limit
	last   time.Time // time of the last measurement
}

// limitEvery is the approximate time between two measurements of the limits.
const limitEvery = 45 * time.Second

// limit is a bound of a save or a load.
type limit struct {
	name, unit, what string
	measure          func(dir string, small bool) (float64, error)
}

func machineLimits() []limit {
	return []limit{
		{result.LimitSync, "s", "overwrite 4 KiB in a preallocated file of 16 MiB, then fdatasync: p50", measureSync},
		{result.LimitWrite, "B/s", "consecutive writes of 1 MiB to a new file, with a final fdatasync", measureWrite},
		{result.LimitRead, "B/s", "reads of 1 MiB from the same file, not in the page cache", measureRead},
		{result.LimitCopy, "B/s", "copy 64 MiB in memory, one core", measureCopy},
		{result.LimitAESGCM, "B/s", "AES-256-GCM of 16 KiB at a time, one core", measureAESGCM},
		{result.LimitZstd, "B/s", "zstd of a chat of 100 kB at the fastest level, one core", measureZstd},
	}
}

func pipelineLimit() limit {
	return limit{name: result.LimitPipeline, unit: "saves/s", what: fmt.Sprintf("all cores ÷ the CPU time of a save of 1 kB on one of %d chats "+
		"of 100 kB by ckptd, one writer per core, with a backend that acknowledges immediately", pipelineThreads)}
}

// visitLimits measures every limit once, which takes one or two seconds.
func (r *runner) visitLimits(ctx context.Context) error {
	r.log.Info("measuring the machine")
	for _, l := range machineLimits() {
		if err := ctx.Err(); err != nil {
			return err
		}
		value, err := l.measure(r.base, r.small())
		if err != nil {
			return fmt.Errorf("measuring %s of the machine: %w", l.name, err)
		}
		r.limits.rounds.add(l.name, value)
	}
	os.Remove(filepath.Join(r.base, "sequential"))
	err := r.pipeline(ctx)
	r.limits.last = time.Now()
	return err
}

func (r *runner) small() bool { return r.plan.Rounds == 1 }

// limitsAmid measures the limits if they are due.
func (r *runner) limitsAmid(ctx context.Context) error {
	if time.Since(r.limits.last) < limitEvery {
		return nil
	}
	return r.visitLimits(ctx)
}

// limitsDone measures the limits for the last time, until they have as many rounds as other
// figures, and compares every figure with them. A limit that could not be measured is skipped by
// name, because nothing could be compared with it.
func (r *runner) limitsDone(ctx context.Context) error {
	for len(r.limits.rounds[result.LimitSync]) < r.plan.Rounds {
		if err := r.visitLimits(ctx); err != nil {
			return err
		}
	}
	for _, l := range append(machineLimits(), pipelineLimit()) {
		figure := result.FigureOf(r.limits.rounds[l.name])
		if figure.Median <= 0 {
			r.skip("the limit "+l.name, errUnmeasured)
			continue
		}
		r.out.Limits = append(r.out.Limits, result.Limit{Name: l.name, Unit: l.unit, What: l.what, Figure: figure})
	}
	for _, compare := range r.compare {
		compare()
	}
	return nil
}

var errUnmeasured = errors.New("it could not be measured, so no figure is compared with it")

// pipelineThreads is the largest number of writers in any set: their states occupy the processor's
// caches, which is part of the cost of a save.
const pipelineThreads = 256

// pipeline measures the saves per second on all cores that the CPU time of ckptd's own save allows.
func (r *runner) pipeline(ctx context.Context) (err error) {
	ckptd, err := rival.Lookup(result.Ckptd)
	if err != nil {
		return err
	}
	cores := runtime.GOMAXPROCS(0)
	e, err := r.enter(ctx, "the pipeline", []rival.Rival{ckptd},
		OpenArgs{Durable: true, Workload: "chat", Size: 100_000, Filled: true, Writers: cores, Threads: pipelineThreads, Pipeline: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.leave()) }()
	return e.each(ctx, 0, func(c *contender) error {
		if err := c.call(ctx, "Begin", struct{}{}, &Turn{}); err != nil {
			return err
		}
		if _, err := c.turn(ctx, TurnArgs{Steps: 2 * pipelineThreads / cores}); err != nil { // warm
			return err
		}
		turn, err := c.turn(ctx, TurnArgs{Seconds: r.plan.Seconds})
		if err != nil {
			return err
		}
		if turn.Usage.CPU > 0 { // after subtracting the cost of making the states; only a stall leaves nothing
			r.limits.rounds.add(result.LimitPipeline, float64(cores)*float64(turn.Saves)/turn.Usage.CPU)
		}
		return nil
	})
}

func measureSync(dir string, small bool) (float64, error) {
	const size, page = 16 << 20, 4096
	file, err := os.Create(filepath.Join(dir, "preallocated"))
	if err != nil {
		return 0, err
	}
	defer os.Remove(file.Name())
	defer file.Close()
	if _, err := file.Write(make([]byte, size)); err != nil {
		return 0, err
	}
	if err := file.Sync(); err != nil {
		return 0, err
	}
	n := 300
	if small {
		n = 30
	}
	buf := make([]byte, page)
	took := make([]float64, n)
	for i := range took {
		rand.Read(buf[:64])
		began := time.Now()
		if _, err := file.WriteAt(buf, int64(i)*page%size); err != nil {
			return 0, err
		}
		if err := unix.Fdatasync(int(file.Fd())); err != nil {
			return 0, err
		}
		took[i] = since(began)
	}
	slices.Sort(took)
	return took[n/2], nil
}

func sequentialBytes(small bool) int64 {
	if small {
		return 16 << 20
	}
	return 256 << 20
}

func measureWrite(dir string, small bool) (float64, error) {
	file, err := os.Create(filepath.Join(dir, "sequential"))
	if err != nil {
		return 0, err
	}
	defer file.Close()
	buf := make([]byte, 1<<20)
	rand.Read(buf)
	began := time.Now()
	for range sequentialBytes(small) >> 20 {
		if _, err := file.Write(buf); err != nil {
			return 0, err
		}
	}
	if err := unix.Fdatasync(int(file.Fd())); err != nil {
		return 0, err
	}
	return float64(sequentialBytes(small)) / since(began), nil
}

// measureRead reads the file written by measureWrite.
func measureRead(dir string, small bool) (float64, error) {
	file, err := os.Open(filepath.Join(dir, "sequential"))
	if err != nil {
		return 0, err
	}
	defer file.Close()
	if err := unix.Fadvise(int(file.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil {
		return 0, err
	}
	began := time.Now()
	n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{file}, make([]byte, 1<<20))
	return float64(n) / since(began), err
}

// perSecond calls do repeatedly and returns the rate; each call processes the given bytes.
func perSecond(bytes int, small bool, do func()) float64 {
	length := 100 * time.Millisecond
	if small {
		length = 20 * time.Millisecond
	}
	do()
	n, began := 0, time.Now()
	for time.Since(began) < length {
		do()
		n++
	}
	return float64(n) * float64(bytes) / since(began)
}

func measureCopy(_ string, small bool) (float64, error) {
	from, to := make([]byte, 64<<20), make([]byte, 64<<20)
	from[0] = 1 // otherwise all pages would be the same zero page
	for i := 0; i < len(from); i += 4096 {
		from[i] = byte(i)
	}
	return perSecond(len(from), small, func() { copy(to, from) }), nil
}

func measureAESGCM(_ string, small bool) (float64, error) {
	block, err := aes.NewCipher(make([]byte, 32))
	if err != nil {
		return 0, err
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return 0, err
	}
	text, nonce := make([]byte, 16<<10), make([]byte, aead.NonceSize())
	out := make([]byte, 0, len(text)+aead.Overhead())
	return perSecond(len(text), small, func() { out = aead.Seal(out[:0], nonce, text, nil) }), nil
}

func measureZstd(_ string, small bool) (float64, error) {
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1))
	if err != nil {
		return 0, err
	}
	chat, err := workload.Lookup("chat")
	if err != nil {
		return 0, err
	}
	text := chat.Player(workload.Options{Filled: true}).Next().State.Doc
	var out []byte
	return perSecond(len(text), small, func() { out = enc.EncodeAll(text, out[:0]) }), nil
}
