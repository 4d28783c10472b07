package web

import (
	"fmt"
	"html/template"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tranche-dev/tranche/api/v1alpha1"
	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/text"
	"github.com/tranche-dev/tranche/pkg/web/view"
)

// funcs are the functions of the templates.
func (s *Server) funcs(assets map[string]asset) template.FuncMap {
	return template.FuncMap{
		"asset":    func(name string) string { return s.Base + "/assets/" + assets[name].path },
		"sentence": cluster.Sentence, "capital": text.Capital, "plain": cluster.Plain, "profile": cluster.ProfileName,
		"bytes": bytesText, "num": num, "clock": clock, "seconds": func(s float64) string { return time.Duration(s * float64(time.Second)).Round(time.Second).String() },
		"s": func(n int) string {
			if n == 1 {
				return ""
			}
			return "s"
		},
		"share":   func(part, of int) string { return share(float64(part), float64(of)) },
		"share32": func(part, of int32) string { return share(float64(part), float64(of)) },
		"add":     func(a, b int32) int32 { return a + b },
		"join":    func(all []string) string { return strings.Join(all, " ") },
		"joinwith": func(by string, all []string) string {
			return strings.Join(all, by)
		},
		"amounts": func(of map[string]string) string { return strings.Join(cluster.Amounts(of, false), ", ") },
		"short":   short, "segment": segmentClass, "kind": kindClass, "statesays": func(s cluster.State) string { return stateWords[s] }, "barsays": barSays,
		"tone": tone, "word": word, "steps": steps,
		"firstplaces": func(all []view.Place) []view.Place { return all[:min(len(all), mostPlaces)] },
		"moreplaces":  func(all []view.Place) int { return max(0, len(all)-mostPlaces) },
	}
}

func share(part, of float64) string {
	if of <= 0 {
		return "0"
	}
	return strconv.FormatFloat(part/of*100, 'f', 2, 64)
}

// bytesText is a size in binary units: "1.2 TiB".
func bytesText(n int64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB"}
	v, i := float64(n), 0
	for v >= 1024 && i < len(units)-1 {
		v, i = v/1024, i+1
	}
	if v >= 100 || v == float64(int64(v)) {
		return fmt.Sprintf("%.0f %s", v, units[i])
	}
	return fmt.Sprintf("%.1f %s", v, units[i])
}

// num separates thousands: "12,345".
func num(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

func clock(t any) string {
	switch t := t.(type) {
	case time.Time:
		return t.UTC().Format("2006-01-02 15:04 UTC")
	case *time.Time:
		return clock(*t)
	}
	return ""
}

var gpuName = regexp.MustCompile(`^gpu-([0-9a-f]{4,8})-([0-9a-f]{2})-([0-9a-f]{2})-([0-7])$`)

// short is the PCI address without the usual domain.
func short(gpu string) string {
	return strings.TrimPrefix(gpuName.ReplaceAllString(gpu, "$1:$2:$3.$4"), "0000:")
}

var stateWords = map[cluster.State]string{
	cluster.Free: "free", cluster.Taken: "held", cluster.Blocked: "blocked by a taint",
	cluster.Leftover: "left over: no piece fits here beside those that are held", cluster.Unknown: "not known",
}

// segmentClass is the style of a segment. GPUs of up to 8 parts and others have about the same
// colors for the same fraction, which the label says, too.
func segmentClass(s cluster.Segment) string {
	if s.State != cluster.Taken {
		return string(s.State)
	}
	return kindClass(s.Label, "", make([]int, s.Size), 0)
}

// kindClass is the style of a held device.
func kindClass(label, kind string, positions []int, of int) string {
	switch n := len(positions); {
	case label == cluster.WholeGPU:
		return "whole"
	case strings.HasSuffix(label, cluster.ShareSuffix) || kind == "share":
		return "share"
	case n >= 4:
		return "large"
	case n >= 2:
		return "middle"
	}
	return "small"
}

// barSays is a bar in words: "1g.10gb, 1g.10gb, 6 parts free".
func barSays(g *cluster.GPU) string {
	var out []string
	counts := map[cluster.State]int{}
	for _, s := range g.Bar {
		if s.State == cluster.Taken {
			out = append(out, s.Label)
		}
		counts[s.State] += s.Size
	}
	for _, state := range []cluster.State{cluster.Free, cluster.Blocked, cluster.Leftover, cluster.Unknown} {
		if n := counts[state]; n > 0 {
			out = append(out, fmt.Sprintf("%d of %d parts %s", n, g.Positions, stateWords[state]))
		}
	}
	return strings.Join(out, ", ")
}

func tone(r view.Rollout) string {
	switch {
	case r.Result == cluster.RolloutComplete:
		return "ok"
	case r.Result == cluster.RolloutStopped, r.Result == cluster.RolloutInvalid:
		return "bad"
	}
	return "warn"
}

// word is how far a plan is, in a word.
func word(r view.Rollout) string {
	switch {
	case !r.Known:
		return "waiting for the controller"
	case r.Result != "":
		return string(r.Result)
	case r.Paused:
		return "Paused"
	}
	return r.Reason
}

// stage is a stage of a switch: past, now or ahead.
type stage struct{ Name, Is string }

// steps are the stages of a switch. Rebooting is part of Applying.
func steps(now v1alpha1.State) []stage {
	all := []v1alpha1.State{v1alpha1.Planning, v1alpha1.Waiting, v1alpha1.Tainted, v1alpha1.Draining, v1alpha1.Applying, v1alpha1.Verifying}
	if now == v1alpha1.RollingBack {
		all[len(all)-1] = v1alpha1.RollingBack
	}
	if now == v1alpha1.Rebooting {
		all[4] = v1alpha1.Rebooting
	}
	at := slices.Index(all, now)
	var out []stage
	for i, s := range all {
		is := "ahead"
		switch {
		case i < at:
			is = "past"
		case i == at:
			is = "now"
		}
		out = append(out, stage{string(s), is})
	}
	return out
}
