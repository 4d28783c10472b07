package picture

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/tranche-dev/tranche/pkg/text"
	"github.com/tranche-dev/tranche/pkg/usage"
)

// unknown stands for a value that is not reported.
const unknown = "-"

// DrawNodeUsage writes how much the GPUs of each node are used.
func DrawNodeUsage(p *Page, nodes []usage.Node) {
	var rows [][]string
	for i := range nodes {
		n := &nodes[i]
		rows = append(rows, append([]string{n.Name, strconv.Itoa(len(n.GPUs))}, append(values(n.Values), remark(n))...))
	}
	usageTable(p, []string{"NODE", "GPUS", "MEMORY", "COMPUTE", "ENGINE", "POWER", "REMARKS"}, rows)
}

// DrawGPUUsage writes how much each GPU and each partition is used, by node.
func DrawGPUUsage(p *Page, nodes []usage.Node) {
	for i := range nodes {
		n := &nodes[i]
		p.Blank()
		p.Wrap(n.Name+": ", sums(n), Bold)
		var rows [][]string
		for _, g := range n.GPUs {
			rows = append(rows, append([]string{g.Name}, append(values(g.Values), users(g.Users))...))
			for _, part := range g.Partitions {
				name := "  " + part.Profile
				if part.Instance != "" {
					name += " #" + part.Instance
				}
				rows = append(rows, append([]string{name}, append(values(part.Values), users(part.Users))...))
			}
		}
		if len(rows) > 0 {
			p.Table([]string{"GPU", "MEMORY", "COMPUTE", "ENGINE", "POWER", "PODS"}, rows)
		}
	}
	if len(nodes) == 0 {
		usageTable(p, nil, nil)
	}
}

// DrawPodUsage writes how much each pod uses.
func DrawPodUsage(p *Page, pods usage.PodList) {
	var rows [][]string
	for i := range pods.Items {
		x := &pods.Items[i]
		rows = append(rows, append([]string{x.Namespace, x.Name}, append(values(x.Values), devices(x.Devices))...))
	}
	usageTable(p, []string{"NAMESPACE", "POD", "MEMORY", "COMPUTE", "ENGINE", "POWER", "DEVICES"}, rows)
	p.Unread(pods.Unread)
}

// remark says why values are missing, or not of now.
func remark(n *usage.Node) string {
	switch {
	case len(n.Unread) > 0:
		return n.Unread[0].Message
	case n.Old != "":
		return "old: " + n.Old
	}
	return ""
}

func usageTable(p *Page, head []string, rows [][]string) {
	if len(rows) == 0 {
		p.Wrap("", "The plugins of Tranche report no usage.", Normal)
		return
	}
	p.Table(head, rows)
}

// sums describes a node in one line.
func sums(n *usage.Node) string {
	if len(n.Unread) > 0 {
		return text.Capital(remark(n)) + "."
	}
	v := values(n.Values)
	said := fmt.Sprintf("%s, memory %s, compute %s, engine %s, power %s", text.Count(len(n.GPUs), "GPU"), v[0], v[1], v[2], v[3])
	return strings.TrimSuffix(said+"; "+remark(n), "; ")
}

// values returns the columns MEMORY, COMPUTE, ENGINE and POWER.
func values(v usage.Values) []string {
	memory := unknown
	switch {
	case v.MemoryUsed != nil && v.MemoryTotal != nil:
		memory = ofTotal(text.Bytes(int64(*v.MemoryUsed)), text.Bytes(int64(*v.MemoryTotal)))
	case v.MemoryUsed != nil:
		memory = text.Bytes(int64(*v.MemoryUsed))
	case v.MemoryTotal != nil:
		memory = unknown + " of " + text.Bytes(int64(*v.MemoryTotal))
	}
	return []string{memory, percent(v.Compute), percent(v.Engine), watts(v.Power)}
}

// ofTotal leaves out a unit that is said twice.
func ofTotal(used, total string) string {
	if number, unit, _ := strings.Cut(used, " "); strings.HasSuffix(total, " "+unit) {
		used = number
	}
	return used + " of " + total
}

func percent(ratio *float64) string {
	if ratio == nil {
		return unknown
	}
	return fmt.Sprintf("%.0f%%", *ratio*100)
}

func watts(power *float64) string {
	switch {
	case power == nil:
		return unknown
	case *power >= 10000:
		return fmt.Sprintf("%.1f kW", *power/1000)
	}
	return fmt.Sprintf("%.0f W", *power)
}

func users(all []usage.User) string {
	var names []string
	for _, u := range all {
		name := u.Namespace + "/" + u.Pod
		if u.Pod == "" {
			name += "(claim " + u.Claim + ")"
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return strings.Join(slices.Compact(names), ", ")
}

// devices counts equal ones: "1g.10gb ×2".
func devices(all []usage.Device) string {
	count := map[string]int{}
	for _, d := range all {
		count[d.String()]++
	}
	names := slices.Sorted(maps.Keys(count))
	for i, name := range names {
		if count[name] > 1 {
			names[i] += fmt.Sprintf(" ×%d", count[name])
		}
	}
	return strings.Join(names, ", ")
}
