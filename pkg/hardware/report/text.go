package report

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// WriteText writes the report for people, 80 columns wide unless a name is
// longer.
func (r Report) WriteText(w io.Writer) error {
	var b strings.Builder
	for _, d := range r.Drivers {
		r.writeDriver(&b, d)
	}
	for _, c := range r.GPUs {
		b.WriteString("\n")
		c.writeText(&b)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (r Report) writeDriver(b *strings.Builder, d Driver) {
	if d.Error != "" {
		fmt.Fprintf(b, "%s driver: CANNOT BE ASKED\n", d.Vendor.Title())
		line(b, "wrong", wrap(d.Error))
		return
	}
	count := 0
	for _, c := range r.GPUs {
		if c.Vendor == d.Vendor {
			count++
		}
	}
	cuda, gpus := "", "GPUs"
	if d.CUDAVersion != "" {
		cuda = "CUDA " + d.CUDAVersion
	}
	if count == 1 {
		gpus = "GPU"
	}
	name := strings.TrimSpace(d.Vendor.Title() + " driver " + d.Version)
	fmt.Fprintf(b, "%s\n", strings.Join(nonEmpty(name, cuda, fmt.Sprintf("%d %s", count, gpus)), ", "))
}

// line is one property of a GPU: a name, and what there is to say.
func line(b *strings.Builder, name string, parts ...string) {
	var told []string
	for _, part := range parts {
		if part != "" {
			told = append(told, part)
		}
	}
	if len(told) > 0 {
		fmt.Fprintf(b, "  %-9s %s\n", name, strings.Join(told, ", "))
	}
}

func (c GPU) writeText(b *strings.Builder) {
	name := c.Name
	if name == "" {
		name = "GPU with " + c.ID
	}
	health := "healthy"
	if c.Unhealthy != "" {
		health = "NOT HEALTHY"
	}
	fmt.Fprintf(b, "%s\n", strings.Join(nonEmpty(name, c.ProductName, health), "  "))
	if c.Unhealthy != "" {
		line(b, "wrong", wrap(c.Unhealthy))
	}
	line(b, "note", wrap(c.Note))
	line(b, "UUID", c.UUID)
	if c.DeviceNode != "" {
		line(b, "PCI", c.PCIAddress, c.ID, c.DeviceNode)
	}
	line(b, "MIG", c.migText())
	line(b, "memory", c.Memory.text())
	line(b, "load", c.loadText()...)
	line(b, "modes", c.modesText()...)
	line(b, "ECC", c.eccText()...)
	for _, text := range c.Obstacles {
		line(b, "blocked", wrap(text))
	}
	for _, text := range c.Errors {
		line(b, "unread", wrap(text))
	}
	c.writePartitions(b)
	c.writeProcesses(b)
}

func nonEmpty(texts ...string) []string {
	var kept []string
	for _, text := range texts {
		if text != "" {
			kept = append(kept, text)
		}
	}
	return kept
}

// textWidth is what is left of 80 columns behind the name of a property.
const textWidth = 80 - 12

// wrap breaks a long text into lines below each other.
func wrap(text string) string {
	var b strings.Builder
	width := 0
	for _, word := range strings.Fields(text) {
		switch {
		case width == 0:
		case width+1+len(word) > textWidth:
			b.WriteString("\n" + strings.Repeat(" ", 12))
			width = 0
		default:
			b.WriteString(" ")
			width++
		}
		b.WriteString(word)
		width += len(word)
	}
	return b.String()
}

func (c GPU) migText() string {
	if c.MIG == nil {
		return ""
	}
	return c.MIG.text()
}

func (s Switch) text() string {
	if s.On == s.Pending {
		return onOff(s.On)
	}
	return fmt.Sprintf("%s, and %s after the next reset", onOff(s.On), onOff(s.Pending))
}

func (m *Memory) text() string {
	if m == nil {
		return ""
	}
	text := fmt.Sprintf("%.1f GiB", gib(m.Total))
	if m.Used != nil {
		text = fmt.Sprintf("%.1f of %.1f GiB used", gib(*m.Used), gib(m.Total))
	}
	if m.Reserved > 0 {
		text += fmt.Sprintf(", %.1f GiB kept by the driver", gib(m.Reserved))
	}
	return text
}

func gib(bytes uint64) float64 { return float64(bytes) / (1 << 30) }

func (c GPU) loadText() []string {
	var parts []string
	if u := c.Utilization; u != nil {
		parts = append(parts, fmt.Sprintf("compute %d %%, memory %d %%", u.Compute, u.Memory))
	}
	if c.Temperature != nil {
		parts = append(parts, fmt.Sprintf("%d °C", *c.Temperature))
	}
	if p := c.Power; p != nil {
		text := fmt.Sprintf("%d W", p.Draw/1000)
		if p.Limit > 0 {
			text = fmt.Sprintf("%d of %d W", p.Draw/1000, p.Limit/1000)
		}
		parts = append(parts, text)
	}
	return parts
}

func (c GPU) modesText() []string {
	var parts []string
	if c.ComputePartition != "" {
		mode := "compute " + c.ComputePartition
		others := slices.DeleteFunc(slices.Clone(c.ComputePartitions), func(m string) bool { return m == c.ComputePartition })
		if len(others) > 0 {
			mode += " (or " + strings.Join(others, ", ") + ")"
		}
		parts = append(parts, mode)
	}
	if c.MemoryPartition != "" {
		parts = append(parts, "memory "+c.MemoryPartition)
	}
	if c.Persistence != nil {
		parts = append(parts, "persistence "+onOff(*c.Persistence))
	}
	if c.ComputeMode != "" {
		parts = append(parts, "compute "+c.ComputeMode)
	}
	return parts
}

func (c GPU) eccText() []string {
	e := c.ECC
	if e == nil {
		return nil
	}
	var parts []string
	if e.Switch != nil {
		parts = append(parts, e.text())
	}
	if e.Uncorrected != nil {
		parts = append(parts, fmt.Sprintf("%d uncorrected errors", *e.Uncorrected))
	}
	if e.RemapPending {
		parts = append(parts, "a row to be replaced at the next reset")
	}
	if e.RemapFailed {
		parts = append(parts, "A ROW COULD NOT BE REPLACED")
	}
	return parts
}

// writeTable aligns rows of cells that tabs end. A row may have a note, which
// comes below it as it is, to be copied.
func writeTable(b *strings.Builder, rows []string, notes map[int]string) {
	var table strings.Builder
	t := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	_, _ = io.WriteString(t, strings.Join(rows, "\n")+"\n")
	_ = t.Flush()
	row := 0
	for text := range strings.Lines(table.String()) {
		b.WriteString("  " + strings.TrimRight(text, " \n") + "\n")
		if note := notes[row]; note != "" {
			b.WriteString("      " + note + "\n")
		}
		row++
	}
}

func (c GPU) writePartitions(b *strings.Builder) {
	if len(c.Partitions) == 0 {
		return
	}
	table := migTable
	if c.Partitions[0].Type.FollowsMode() {
		table = xcpTable
	}
	rows, notes := []string{table.head}, map[int]string{}
	for _, p := range c.Partitions {
		rows = append(rows, table.rows(p)...)
		notes[len(rows)-1] = p.Note
	}
	writeTable(b, rows, notes)
}

// partitionTable is the table of one kind of partitions.
type partitionTable struct {
	head string
	rows func(Partition) []string
}

var migTable = partitionTable{"GI\tPROFILE\tSLICES\tUSED/GiB\tUUID", func(p Partition) []string {
	uuids := p.UUIDs
	if p.HalfMade != "" {
		uuids = []string{"half made: " + p.HalfMade}
	}
	at := fmt.Sprint(p.Start)
	if p.Size > 1 {
		at = fmt.Sprintf("%d-%d", p.Start, p.Start+p.Size-1)
	}
	rows := []string{fmt.Sprintf("%s\t%s\t%s\t%s\t%s", strings.TrimPrefix(p.ID, "GI "), p.Profile, at, p.Memory.cell(), strings.Join(uuids[:min(1, len(uuids))], ""))}
	for _, uuid := range uuids[min(1, len(uuids)):] {
		rows = append(rows, "\t\t\t\t"+uuid)
	}
	return rows
}}

var xcpTable = partitionTable{"INDEX\tPROFILE\tID\tMEMORY/GiB\tDEVICE", func(p Partition) []string {
	device := p.DeviceNode
	if p.HalfMade != "" {
		device = "not usable: " + p.HalfMade
	}
	return []string{fmt.Sprintf("%d\t%s\t%s\t%s\t%s", p.Start, p.Profile, p.ID, p.Memory.cell(), device)}
}}

// cell is the memory in GiB, for a table.
func (m *Memory) cell() string {
	switch {
	case m == nil:
		return "-"
	case m.Used == nil:
		return fmt.Sprintf("%.1f", gib(m.Total))
	}
	return fmt.Sprintf("%.1f/%.1f", gib(*m.Used), gib(m.Total))
}

func (c GPU) writeProcesses(b *strings.Builder) {
	if len(c.Processes) == 0 {
		return
	}
	rows := []string{"PID\tMEMORY\tIN\tNAME"}
	for _, p := range c.Processes {
		memory, in := "-", "GPU"
		if p.Memory != nil {
			memory = fmt.Sprintf("%.1f GiB", gib(*p.Memory))
		}
		if p.Partition != "" {
			in = p.Partition
		}
		rows = append(rows, fmt.Sprintf("%d\t%s\t%s\t%s", p.PID, memory, in, p.Name))
	}
	writeTable(b, rows, nil)
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}
