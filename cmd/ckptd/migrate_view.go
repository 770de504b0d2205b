package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/ckptd/ckptd/internal/migration"
)

// groupView is a line of a status or a plan as --json prints it.
type groupView struct {
	Kind    string   `json:"kind"`
	Version uint64   `json:"version"`
	Heads   int      `json:"heads"`
	To      *uint64  `json:"to,omitempty"`
	Steps   []string `json:"steps,omitempty"`
	User    string   `json:"user"`
	Thread  string   `json:"thread"` // an example
	Error   string   `json:"error,omitempty"`
}

// showGroups prints a status or a plan.
func (a *app) showGroups(groups []migration.Group, planned bool) error {
	if a.json {
		for i := range groups {
			g := &groups[i]
			v := groupView{Kind: g.Kind, Version: g.Version, Heads: g.Heads, Steps: g.Steps, User: g.Example.User, Thread: g.Example.Thread}
			if planned {
				v.To = &g.To
			}
			if g.Err != nil {
				v.Error = g.Err.Error()
			}
			if err := a.emit(v); err != nil {
				return err
			}
		}
		return nil
	}
	if len(groups) == 0 {
		a.note("no states")
		return nil
	}
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	head := "KIND\tVERSION\tSTATES"
	if planned {
		head += "\tSTEPS"
	}
	fmt.Fprintln(w, head)
	for i := range groups {
		g := &groups[i]
		kind := printable(g.Kind)
		if kind == "" {
			kind = "(none)"
		}
		line := fmt.Sprintf("%s\t%s\t%d", kind, g.Name, g.Heads)
		if planned {
			line += "\t" + whatToDo(g)
		}
		fmt.Fprintln(w, line)
	}
	if err := wroteOut(w.Flush()); err != nil || !planned {
		return err
	}
	return a.showSteps(groups)
}

// showSteps lists the steps that a plan takes, for each kind those of its oldest states.
func (a *app) showSteps(groups []migration.Group) error {
	for i := range groups {
		g := &groups[i]
		if len(g.Steps) == 0 || i > 0 && groups[i-1].Kind == g.Kind && len(groups[i-1].Steps) > 0 {
			continue
		}
		a.printf("\n%s\n", a.paint.bold(fmt.Sprintf("%s, %d to %d", printable(g.Kind), g.Version, g.To)))
		for _, s := range g.Steps {
			if err := a.printf("  %s\n", printable(s)); err != nil {
				return err
			}
		}
	}
	return nil
}

func whatToDo(g *migration.Group) string {
	switch {
	case g.Err != nil:
		return "refused: " + printable(g.Err.Error())
	case g.Kind == "":
		return "nothing: no kind"
	case len(g.Steps) == 0:
		return "nothing"
	}
	return fmt.Sprintf("to %d in %s", g.To, count(len(g.Steps), "step"))
}

// reportView is a report as --json prints it.
type reportView struct {
	Job      string            `json:"job,omitempty"`
	States   int               `json:"states"`
	Current  int               `json:"current"`
	Left     int               `json:"left"`
	Migrated int               `json:"migrated"`
	Gone     int               `json:"gone"`
	Failed   int               `json:"failed"`
	Failures []stepFailureView `json:"failures"`
}

type stepFailureView struct {
	Kind     string        `json:"kind"`
	From     uint64        `json:"from"`
	To       uint64        `json:"to"`
	Source   string        `json:"source,omitempty"`
	Count    int           `json:"count"`
	Examples []failureView `json:"examples"`
}

type failureView struct {
	User      string `json:"user"`
	Thread    string `json:"thread"`
	Namespace string `json:"namespace,omitempty"`
	ID        string `json:"id,omitempty"`
	Seq       uint64 `json:"seq"`
	Path      string `json:"path,omitempty"`
	Reason    string `json:"reason"`
}

func viewReport(r *migration.Report, job string) reportView {
	v := reportView{job, r.States, r.Current, r.Left, r.Migrated, r.Gone, r.Failed, []stepFailureView{}}
	for _, s := range r.Failures {
		sv := stepFailureView{s.Kind, s.From, s.To, s.Source, s.Count, nil}
		for _, f := range s.Examples {
			sv.Examples = append(sv.Examples, failureView{f.Ref.User, f.Ref.Thread, f.Ref.Namespace, f.ID, f.Seq, f.Path, f.Reason})
		}
		v.Failures = append(v.Failures, sv)
	}
	return v
}

// shownExamples is the number of failures of a step that are printed one by one; --json has more.
const shownExamples = 5

// showReport prints the result of a dry run, a run or an undo.
func (a *app) showReport(r *migration.Report, job, did string) error {
	if a.json {
		return a.emit(viewReport(r, job))
	}
	for _, s := range r.Failures {
		step := "other failures"
		if did == "undone" {
			step = "skipped"
		}
		if s.Kind != "" {
			step = fmt.Sprintf("step %d to %d of %s", s.From, s.To, printable(s.Kind))
		}
		if s.Source != "" {
			step += ", " + printable(s.Source)
		}
		a.printf("%s: %s\n", a.paint.bold(step), count(s.Count, "state"))
		w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
		for _, f := range s.Examples[:min(len(s.Examples), shownExamples)] {
			where := printable(f.Ref.Thread)
			if f.Ref.Namespace != "" {
				where += " (" + printable(f.Ref.Namespace) + ")"
			}
			path := f.Path
			if path == "" {
				path = "/"
			}
			fmt.Fprintf(w, "  %s\t@%d\t%s\t%s\n", where, f.Seq, printable(path), printable(cut(f.Reason, 200)))
		}
		if err := wroteOut(w.Flush()); err != nil {
			return err
		}
		if more := s.Count - min(len(s.Examples), shownExamples); more > 0 {
			a.printf("  and %s more\n", count(more, "state"))
		}
	}
	line := fmt.Sprintf("%s looked at: %d %s", count(r.States, "state"), r.Migrated, did)
	for _, n := range []struct {
		n    int
		what string
	}{{r.Current, "already current"}, {r.Left, "without migrations"}, {r.Gone, "deleted meanwhile"}, {r.Failed, "failed"}} {
		if n.n > 0 {
			line += fmt.Sprintf(", %d %s", n.n, n.what)
		}
	}
	if err := a.printf("%s\n", line); err != nil {
		return err
	}
	if r.Left > 0 && r.Left == r.States {
		a.note("no state has a kind, or %s", noMigrations)
	}
	if job != "" && did == "migrated" {
		return a.printf("job %s: undo it with ckptd migrate undo %s, or finish it with ckptd migrate finish %s\n", job, job, job)
	}
	return nil
}

// jobView is a job as --json prints it.
type jobView struct {
	ID       string            `json:"id"`
	State    string            `json:"state"`
	Tenant   string            `json:"tenant"`
	User     string            `json:"user,omitempty"`
	To       map[string]uint64 `json:"to"`
	Rewrite  bool              `json:"rewrite"`
	Created  time.Time         `json:"created"`
	Updated  time.Time         `json:"updated"`
	Migrated int               `json:"migrated"`
	Failed   int               `json:"failed"`
	Undone   int               `json:"undone"`
	Kept     int               `json:"kept"`
}

func (a *app) showJobs(jobs []*migration.Job) error {
	if a.json {
		for _, j := range jobs {
			if err := a.emit(jobView{j.ID, string(j.State), j.Spec.Tenant, j.Spec.User, j.To, j.Spec.Rewrite, j.Created, j.Updated,
				j.Migrated, j.Failed, j.Undone, j.Kept}); err != nil {
				return err
			}
		}
		return nil
	}
	if len(jobs) == 0 {
		a.note("no jobs")
		return nil
	}
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "JOB\tSTATE\tMIGRATED\tUNDONE\tFAILED\tTO")
	for _, j := range jobs {
		var to []string
		for _, kind := range slices.Sorted(maps.Keys(j.To)) {
			to = append(to, fmt.Sprintf("%s %d", printable(kind), j.To[kind]))
		}
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%d\t%s\n", j.ID, j.State, j.Migrated, j.Undone, j.Failed, strings.Join(to, ", "))
	}
	return wroteOut(w.Flush())
}
