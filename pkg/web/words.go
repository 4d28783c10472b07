package web

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/cluster/overview"
	"github.com/tranche-dev/tranche/pkg/gpu"
)

// share returns a part of 100, for a picture.
func share(part, of int) string {
	if of <= 0 {
		return "0"
	}
	return strconv.FormatFloat(float64(part)/float64(of)*100, 'f', 2, 64)
}

func plural(n int) string { return when(n != 1, "s") }

// num separates thousands: "12,345".
func num(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

func clock(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 UTC") }

// age returns a time for people: "3m", "2d4h". Ages of pages that are open change once a minute.
func age(d time.Duration) string {
	if d >= time.Minute {
		d = d.Truncate(time.Minute)
	}
	return duration.HumanDuration(max(0, d))
}

// segmentClass returns the style of a segment. GPUs of up to 8 parts and others have about the same
// colors for the same fraction, which the label says, too.
func segmentClass(s cluster.Segment) string {
	if s.State != cluster.Taken {
		return string(s.State)
	}
	return kindClass(s.Label, "", s.Size)
}

// kindClass returns the style of a held device.
func kindClass(label string, kind gpu.Type, positions int) string {
	switch {
	case label == cluster.WholeGPU:
		return "whole"
	case strings.HasSuffix(label, cluster.ShareSuffix) || kind == gpu.TypeShare:
		return "share"
	case positions >= 4:
		return "large"
	case positions >= 2:
		return "middle"
	}
	return "small"
}

// barSays returns a bar in words: "1g.10gb, 1g.10gb, 75 % free".
func barSays(g *cluster.GPU) string {
	var out []string
	for _, s := range g.Bar {
		if s.State == cluster.Taken {
			out = append(out, s.Label)
		}
	}
	for _, state := range []cluster.State{cluster.Free, cluster.Blocked, cluster.Leftover, cluster.Unknown} {
		n := 0.0
		for _, s := range g.Bar {
			n += s.Positions(state)
		}
		if n > 0 {
			out = append(out, fmt.Sprintf("%.0f %% %s", n/float64(g.Positions)*100, overview.Position(state)))
		}
	}
	return strings.Join(out, ", ")
}
