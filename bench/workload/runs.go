package workload

import (
	"errors"
	"fmt"
	"os"

	"github.com/ckptd/ckptd/internal/trajectory"
)

// Input creates a workload from a file of real runs, in any form that ckptd import reads. Each
// thread is a run and each step one of its messages. It holds all runs in memory.
func Input(name, path string) (Workload, error) {
	file, err := os.Open(path)
	if err != nil {
		return Workload{}, fmt.Errorf("opening runs: %w", err)
	}
	defer file.Close()
	var runs [][][]byte
	steps := 0
	for run, err := range trajectory.Parse(file, trajectory.Options{}) {
		if err != nil {
			return Workload{}, fmt.Errorf("reading runs: %w", err)
		}
		if len(run.Messages) == 0 {
			continue
		}
		list := make([][]byte, len(run.Messages))
		for i, m := range run.Messages {
			list[i] = m
		}
		runs = append(runs, list)
		steps += len(list)
	}
	if len(runs) == 0 {
		return Workload{}, errors.New("reading runs: the file holds none")
	}
	size := 0
	for _, run := range runs {
		for _, m := range run {
			size += len(m) + 1
		}
	}
	return Workload{
		Name: name, What: fmt.Sprintf("%d real runs of %d steps", len(runs), steps), Size: size / len(runs), Fixed: true,
		start: func(o Options) script { return &replay{run: runs[o.Thread%len(runs)]} },
	}, nil
}

// replay plays one run.
type replay struct {
	transcript
	run [][]byte
	at  int
}

func (r *replay) message(b []byte) []byte {
	b = append(b, r.run[r.at]...)
	r.at++
	return b
}

func (r *replay) first(p *Player) {
	r.most = endless
	r.begin(p, 0, r.message)
	p.ended = r.at == len(r.run)
}

func (r *replay) next(p *Player) {
	r.add(p, r.message)
	p.ended = r.at == len(r.run)
}
