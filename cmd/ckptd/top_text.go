package main

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
)

// topLines draws the last of the views for a width. All views, of the last minute, give the curve.
func (p paint) topLines(server string, last []topView, width int) []string {
	v := last[len(last)-1]
	clock := v.Time.Local().Format("15:04:05")
	head := cut(fmt.Sprintf("ckptd %s at %s, up %s", printable(v.Version), printable(server), uptime(v.Uptime)), max(20, width-len(clock)-2))
	lines := []string{p.bold(head) + strings.Repeat(" ", max(2, width-len([]rune(head))-len(clock))) + clock, ""}
	row := func(label, text string, colour ...string) {
		line := []rune(cut(fmt.Sprintf("%-10s%s", label, text), width))
		n := min(10, len(line))
		rest := string(line[n:])
		if len(colour) > 0 {
			rest = p.with(colour[0], rest)
		}
		lines = append(lines, p.dim(string(line[:n]))+rest)
	}
	each := func(x float64) string { return fmt.Sprintf("%10s /s", perSecond(x)) }
	row("saves", each(v.Saves)+"   "+sparkline(last, width-26))
	row("loads", each(v.Loads))
	row("errors", each(v.Errors), alarm("31", v.Errors)...)
	row("rejected", each(v.Rejected), alarm("33", v.Rejected)...)
	lines = append(lines, "")
	row("", fmt.Sprintf("%10s %10s %10s", "p50", "p99", "p99.9"))
	for _, l := range []struct {
		label string
		*topLatency
		after string
	}{{"save", v.Save, ""}, {"load", v.Load, ""}, {"commit", v.Commit, groupText(v.Group)}} {
		p50, p99, p999 := l.texts()
		row(l.label, fmt.Sprintf("%10s %10s %10s%s", p50, p99, p999, l.after))
	}
	lines = append(lines, "")
	row("requests", fmt.Sprintf("%s in flight, %s, %s", humanize.Comma(int64(v.InFlight)), plural(int(v.Watchers), "watcher", "watchers"), count(int(v.Connections), "connection")))
	row("bytes", fmt.Sprintf("%s/s of states → %s/s stored%s", size(int64(v.StateBytes)), size(int64(v.StoredBytes)), smaller(v)))
	row("cache", fmt.Sprintf("%s hits, %s", percent(v.CacheHits), size(v.CacheBytes)))
	row("server", fmt.Sprintf("%s memory, %s disk, %s", size(v.MemoryBytes), size(v.DiskBytes), count(int(v.Goroutines), "goroutine")))
	return lines
}

// alarm is the colour of a rate that should be zero, none if it is.
func alarm(colour string, x float64) []string {
	if x == 0 {
		return nil
	}
	return []string{colour}
}

// topLine formats a view as one line, for output without a screen.
func topLine(v topView) string {
	p50, p99, p999 := v.Save.texts()
	_, commit, _ := v.Commit.texts()
	return fmt.Sprintf("%s  saves %s/s  loads %s/s  errors %s/s  rejected %s/s  save p50 %s p99 %s p99.9 %s  commit p99 %s  group %s  in flight %d  stored %s/s  cache %s  memory %s",
		v.Time.Local().Format("15:04:05"), perSecond(v.Saves), perSecond(v.Loads), perSecond(v.Errors), perSecond(v.Rejected),
		p50, p99, p999, commit, decimal(v.Group), v.InFlight, size(int64(v.StoredBytes)), percent(v.CacheHits), size(v.MemoryBytes))
}

// none is shown for a missing value.
const none = "–"

// texts are the quantiles for people.
func (l *topLatency) texts() (p50, p99, p999 string) {
	if l == nil {
		return none, none, none
	}
	text := func(ms float64) string {
		d := took(time.Duration(ms * float64(time.Millisecond)))
		if ms >= l.most {
			return "> " + d
		}
		return d
	}
	return text(l.P50), text(l.P99), text(l.P999)
}

// perSecond is a rate for people.
func perSecond(x float64) string {
	if x > 0 && x < 10 {
		return fmt.Sprintf("%.1f", x)
	}
	return humanize.Comma(int64(math.Round(x)))
}

func decimal(x *float64) string {
	if x == nil {
		return none
	}
	return fmt.Sprintf("%.1f", *x)
}

func percent(x *float64) string {
	if x == nil {
		return none
	}
	return fmt.Sprintf("%.1f %%", *x*100)
}

func groupText(group *float64) string {
	if group == nil {
		return ""
	}
	return fmt.Sprintf("   %.1f commits a group", *group)
}

func smaller(v topView) string {
	if v.StoredBytes <= 0 || v.StateBytes <= v.StoredBytes {
		return ""
	}
	return fmt.Sprintf(", %.1f times smaller", v.StateBytes/v.StoredBytes)
}

// uptime prints seconds as their two largest units.
func uptime(seconds float64) string {
	s := int64(seconds)
	switch {
	case s < 60:
		return fmt.Sprintf("%ds", s)
	case s < 3600:
		return fmt.Sprintf("%dm %ds", s/60, s%60)
	case s < 86400:
		return fmt.Sprintf("%dh %dm", s/3600, s/60%60)
	}
	return fmt.Sprintf("%dd %dh", s/86400, s/3600%24)
}

// sparkline draws the saves of the last most views as a curve from zero up.
func sparkline(last []topView, most int) string {
	if most < 8 {
		return ""
	}
	last = last[max(0, len(last)-most):]
	peak := 0.0
	for i := range last {
		peak = max(peak, last[i].Saves)
	}
	blocks := []rune("▁▂▃▄▅▆▇█")
	curve := make([]rune, len(last))
	for i := range last {
		curve[i] = blocks[0]
		if peak > 0 {
			curve[i] = blocks[int(math.Round(last[i].Saves/peak*float64(len(blocks)-1)))]
		}
	}
	return string(curve)
}
