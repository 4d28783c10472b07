package report

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"

	"github.com/tranche-dev/tranche/test/packing/replay"
	"github.com/tranche-dev/tranche/test/packing/workload"
)

// The size of a plot and its margins, in pixels. The key is in the right margin.
const (
	plotWidth, plotHeight       = 780, 340
	left, right, above, beneath = 150, 160, 40, 50
	plotRight, plotBottom       = plotWidth - right, plotHeight - beneath
	row                         = 18
)

// colors are those of Okabe and Ito, which people with color blindness can tell apart.
var colors = []string{"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000"}

// dashes tell lines of the same color apart.
var dashes = []string{"none", "6 3", "2 3"}

// Plots writes two plots for each workload and load into a folder: the memory that is allocated
// over time with the first seed of each policy, and the demand that waits, as the mean of all seeds.
func (r *Results) Plots(folder string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	for _, w := range r.Workloads {
		for _, load := range r.Loads {
			names, all := r.drawn(w, load)
			if len(names) == 0 {
				continue
			}
			title := fmt.Sprintf("%s at load %.2f, %d GPUs", w, load, int(r.gpus()))
			for name, plot := range map[string]string{
				"allocated": overTime("GPU memory allocated: "+title, names, all, r.gpus()),
				"waiting":   waitingBars("Demand that waits: "+title, names, all),
			} {
				file := filepath.Join(folder, fmt.Sprintf("%s-%.2f-%s.svg", w, load, name))
				if err := os.WriteFile(file, []byte(plot), 0o644); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// svg is a picture that is being drawn.
type svg struct{ strings.Builder }

func newSVG(title string) *svg {
	out := &svg{}
	fmt.Fprintf(out, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n", plotWidth, plotHeight)
	fmt.Fprintf(out, "<title>%s</title>\n<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n", title)
	out.text(plotWidth/2, above/2, "middle", title)
	return out
}

func (out *svg) text(x, y float64, anchor, text string) {
	fmt.Fprintf(out, `<text x="%.0f" y="%.0f" text-anchor="%s">%s</text>`+"\n", x, y, anchor, text)
}

func (out *svg) rect(x, y, width, height float64, color string) {
	fmt.Fprintf(out, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s"/>`+"\n", x, y, width, height, color)
}

func (out *svg) path(points, color, dash string, width float64) {
	fmt.Fprintf(out, `<path d="M%s" fill="none" stroke="%s" stroke-dasharray="%s" stroke-width="%.1f"/>`+"\n", points, color, dash, width)
}

// ticksX draws the marks of the horizontal axis from 0 to most.
func (out *svg) ticksX(most float64, unit string) {
	for v := 0.0; v <= most*1.0001; v += step(most) {
		x := left + v/most*(plotRight-left)
		out.path(fmt.Sprintf("%.0f %d V%d", x, above, plotBottom), "#ddd", "none", 1)
		out.text(x, plotBottom+row, "middle", fmt.Sprintf("%g", v))
	}
	out.text((left+plotRight)/2, plotBottom+2*row, "middle", unit)
}

// step is the distance of about five round marks.
func step(most float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(most/5)))
	for _, by := range []float64{1, 2, 5} {
		if most/(by*power) <= 6 {
			return by * power
		}
	}
	return 10 * power
}

func (out *svg) String() string { return out.Builder.String() + "</svg>\n" }

// overTime draws a line for the first result of each policy: the share of a number of GPUs that is
// allocated.
func overTime(title string, names []string, all [][]replay.Result, gpus float64) string {
	out := newSVG(title)
	most := 0.0
	for _, of := range all {
		most = max(most, of[0].Series[len(of[0].Series)-1].Time/replay.Hour)
	}
	out.ticksX(most, "hours")
	for v := 0; v <= 100; v += 20 {
		y := plotBottom - float64(v)/100*(plotBottom-above)
		out.path(fmt.Sprintf("%d %.0f H%d", left, y, plotRight), "#ddd", "none", 1)
		out.text(left-6, y+4, "end", fmt.Sprintf("%d %%", v))
	}
	for i, of := range all {
		var points []string
		for _, s := range of[0].Series {
			x, y := left+s.Time/replay.Hour/most*(plotRight-left), plotBottom-s.Held/gpus*(plotBottom-above)
			points = append(points, fmt.Sprintf("%.1f %.1f", x, y))
		}
		color, dash := colors[i%len(colors)], dashes[i/len(colors)%len(dashes)]
		out.path(strings.Join(points, "L"), color, dash, 1.5)
		y := float64(above + row*i)
		out.path(fmt.Sprintf("%d %.0f h20", plotRight+8, y), color, dash, 2)
		out.text(plotRight+34, y+4, "start", names[i])
	}
	return out.String()
}

// waitingBars draws a bar for each policy: the share of the demand that waits, by what is asked
// for. Partitions are one part of it.
func waitingBars(title string, names []string, all [][]replay.Result) string {
	out := newSVG(title)
	share := func(of []replay.Result, from, to int) (sum float64) {
		for _, r := range of {
			for _, gpus := range r.Average.Waiting[from:to] {
				sum += percent(gpus, demand(r))
			}
		}
		return sum / float64(len(of))
	}
	most := 1.0
	for _, r := range all {
		most = max(most, share(r, 0, len(workload.Kinds)))
	}
	out.ticksX(most, "% of the demand")
	high := float64(plotBottom-above) / float64(len(all))
	for i, r := range all {
		x, y := float64(left), above+high*float64(i)
		out.text(left-6, y+high/2+4, "end", names[i])
		for k := workload.WholeGPU - 1; k < len(workload.Kinds); k++ {
			from := k
			if k < workload.WholeGPU {
				from = 0
			}
			width := share(r, from, k+1) / most * (plotRight - left)
			out.rect(x, y+0.15*high, width, 0.7*high, colors[k-workload.WholeGPU+1])
			x += width
		}
		out.text(x+4, y+high/2+4, "start", fmt.Sprintf("%.1f %%", share(r, 0, len(workload.Kinds))))
	}
	for k := workload.WholeGPU - 1; k < len(workload.Kinds); k++ {
		y, name := float64(above+row*(k-workload.WholeGPU+1)), workload.Kinds[k].String()
		if k < workload.WholeGPU {
			name = "partitions"
		}
		out.rect(plotRight+54, y, 12, 12, colors[k-workload.WholeGPU+1])
		out.text(plotRight+72, y+10, "start", name)
	}
	return out.String()
}
