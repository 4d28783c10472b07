package web

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tranche-dev/tranche/pkg/cluster/overview"
)

const (
	// shown is how far back charts reach.
	shown = time.Hour
	// broken is the distance of points between which nothing was measured.
	broken = 2 * time.Minute
	// chartWidth and chartHeight are the size of a chart in its own units.
	chartWidth, chartHeight = 360, 80
)

var (
	// errNoUsage: the server has no way to find out.
	errNoUsage     = errors.New("metrics are not read here")
	errNotReported = errors.New("the node's plugin reports nothing about this GPU")
)

type chart struct {
	Title, Now, Says, From string
	Curve, Area            string
	Lines                  []int
}

// charts returns the charts of the last hour.
func charts(u overview.Usage, now time.Time) []chart {
	var out []chart
	for _, s := range u.Series {
		if n := len(s.Points); n > 0 && now.Sub(s.Points[n-1].At) <= shown {
			out = append(out, draw(s, now))
		}
	}
	return out
}

func draw(s overview.Series, now time.Time) chart {
	from := now.Add(-shown)
	if first := s.Points[0]; first.At.After(from) {
		from = first.At
	}
	points := s.Points[slices.IndexFunc(s.Points, func(p overview.Point) bool { return !p.At.Before(from) }):]
	last := points[len(points)-1]
	most, top := 0.0, s.Max
	for _, p := range points {
		most = max(most, p.Value)
	}
	if top <= 0 {
		top = max(most, 1e-9)
	}
	current := s.Text(last.Value)
	if now.Sub(last.At) > broken {
		current = "not known"
	}
	c := chart{Title: s.Title, Now: current, Says: "at most " + s.Text(most), From: ago(now.Sub(from)), Lines: []int{20, 40, 60}}
	x := func(p overview.Point) float64 {
		return float64(p.At.Sub(from)) / float64(max(now.Sub(from), time.Second)) * chartWidth
	}
	y := func(p overview.Point) float64 { return chartHeight - 1 - min(1, p.Value/top)*(chartHeight-4) }
	var curve, area strings.Builder
	for i, p := range points {
		starts := i == 0 || p.At.Sub(points[i-1].At) > broken
		ends := i == len(points)-1 || points[i+1].At.Sub(p.At) > broken
		if starts {
			fmt.Fprintf(&curve, "M%.1f %.1f", x(p), y(p))
			fmt.Fprintf(&area, "M%.1f %dL%.1f %.1f", x(p), chartHeight, x(p), y(p))
		} else {
			fmt.Fprintf(&curve, "L%.1f %.1f", x(p), y(p))
			fmt.Fprintf(&area, "L%.1f %.1f", x(p), y(p))
		}
		if ends {
			fmt.Fprintf(&area, "L%.1f %dZ", x(p), chartHeight)
		}
	}
	c.Curve, c.Area = curve.String(), area.String()
	return c
}

func ago(d time.Duration) string {
	if d < time.Minute {
		return fmt.Sprintf("%d s ago", int(d.Seconds()))
	}
	return fmt.Sprintf("%d min ago", int(d.Minutes()))
}
