package profile

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/gpu"
)

const head = "apiVersion: tranche.dev/v1beta1\nkind: PartitionProfile\nmetadata: {name: p}\n"

func parse(t *testing.T, spec string) *Profile {
	t.Helper()
	s, err := Parse("p.yaml", []byte(head+"spec: "+spec))
	require.NoError(t, err)
	return s
}

var (
	h100 = gpu.GPU{PCIAddress: "0000:1b:00.0", Vendor: gpu.NVIDIA, Index: 0, ProductName: "NVIDIA H100 80GB HBM3"}
	l4   = gpu.GPU{PCIAddress: "0000:c1:00.0", Vendor: gpu.NVIDIA, Index: 5, ProductName: "NVIDIA L4"}
	mi   = gpu.GPU{PCIAddress: "0000:05:00.0", Vendor: gpu.AMD, Index: 0, ProductName: "AMD Instinct MI300X OAM"}
)

func TestSettingsOfARule(t *testing.T) {
	for name, tt := range map[string]struct {
		rule string
		gpu  gpu.GPU
		want func(*Desired)
	}{
		"nothing":            {"{}", h100, func(*Desired) {}},
		"empty sharing":      {"{sharing: {}}", h100, func(*Desired) {}},
		"off":                {"{sharing: {wholeGPUs: false}}", h100, func(c *Desired) { c.Shared = false }},
		"one replica":        {"{sharing: {replicas: 1}}", h100, func(c *Desired) { c.Replicas = 1 }},
		"many replicas":      {"{sharing: {replicas: 100}}", h100, func(c *Desired) { c.Replicas, c.MaxClients = 100, 100 }},
		"as many clients":    {"{sharing: {replicas: 4, maxClients: 4}}", h100, func(c *Desired) { c.Replicas, c.MaxClients = 4, 4 }},
		"one client":         {"{sharing: {failRequestsGreaterThanOne: true}}", h100, func(c *Desired) { c.FailRequestsGreaterThanOne = true }},
		"limits":             {"{sharing: {maxMemoryLimitPercent: 150}}", h100, func(c *Desired) { c.MaxMemoryLimitPercent = 150 }},
		"limits by default":  {"{sharing: {maxMemoryLimitPercent: 100}}", h100, func(*Desired) {}},
		"time slice":         {"{sharing: {timeSlice: Long}}", h100, func(c *Desired) { c.TimeSlice = gpu.LongSlice }},
		"default time slice": {"{sharing: {strategy: TimeSlicing, timeSlice: Default}}", h100, func(c *Desired) { c.TimeSlice = gpu.DefaultSlice }},
		"MPS": {"{sharing: {strategy: MPS, exclusiveProcess: true, replicas: 48, maxClients: 48}}", h100, func(c *Desired) {
			c.Strategy, c.ExclusiveProcess, c.Replicas = gpu.MPS, true, 48
		}},
		"partitions":    {"{sharing: {partitions: {profiles: [1g.10gb, 3g.40gb]}}}", h100, func(c *Desired) { c.Partitions = []string{"1g.10gb", "3g.40gb"} }},
		"by fraction":   {"{sharing: {partitions: {profiles: [1g.24gb-me], units: [Memory, Fraction]}}}", h100, func(c *Desired) { c.Partitions, c.PartitionBases = []string{"1g.24gb-me"}, gpu.Bases() }},
		"only fraction": {"{sharing: {partitions: {profiles: [1g.10gb], units: [Fraction]}}}", h100, func(c *Desired) { c.Partitions, c.PartitionBases = []string{"1g.10gb"}, []gpu.Basis{gpu.ByFraction} }},
		"whole":         {"{extendedResource: {device: GPU}}", h100, func(*Desired) {}},
		"replica":       {"{extendedResource: {device: GPUReplica}}", h100, func(c *Desired) { c.ExtendedResource.Device = v1beta1.DeviceGPUReplica }},
		"partition": {"{extendedResource: {device: Partition, profile: 1g.10gb+me}}", h100, func(c *Desired) {
			c.ExtendedResource = v1beta1.ExtendedResource{Device: v1beta1.DevicePartition, Profile: "1g.10gb+me"}
		}},
		"AMD": {"{gpus: {vendor: amd}, extendedResource: {device: Partition, profile: cpx}, sharing: {partitions: {profiles: [cpx, dpx]}}}", mi, func(c *Desired) {
			c.ExtendedResource, c.Partitions = v1beta1.ExtendedResource{Device: v1beta1.DevicePartition, Profile: "cpx"}, []string{"cpx", "dpx"}
		}},
		"both vendors":  {"{extendedResource: {device: Partition, profile: 1g.10gb}, sharing: {partitions: {profiles: [cpx, 1g.10gb]}}}", mi, func(c *Desired) { c.Partitions = []string{"cpx"} }},
		"MPS for all":   {"{sharing: {strategy: MPS, exclusiveProcess: true, replicas: 4}}", mi, func(c *Desired) { c.Replicas = 4 }},
		"slice for all": {"{sharing: {timeSlice: Short}}", mi, func(*Desired) {}},
	} {
		t.Run(name, func(t *testing.T) {
			want := Default()
			want.Profile = "p"
			tt.want(&want)
			got := parse(t, "{rules: ["+tt.rule+"]}").For(&tt.gpu)
			if len(got.Partitions) == 0 {
				got.Partitions = nil
			}
			assert.Equal(t, want, got)
		})
	}
}

// A GPU has what the first rule says that selects it.
func TestSelectors(t *testing.T) {
	none := Default().Replicas
	for name, tt := range map[string]struct {
		rules         string
		h100, l4, amd int
	}{
		"no rules":       {"[]", none, none, none},
		"all":            {"[{sharing: {replicas: 2}}]", 2, 2, 2},
		"empty selector": {"[{gpus: {}, sharing: {replicas: 2}}]", 2, 2, 2},
		"vendor":         {"[{gpus: {vendor: nvidia}, sharing: {replicas: 2}}]", 2, 2, none},
		"product":        {`[{gpus: {productNames: ["NVIDIA H100 80GB HBM3"]}, sharing: {replicas: 2}}]`, 2, none, none},
		"glob":           {`[{gpus: {productNames: ["*h100*", "* l?"]}, sharing: {replicas: 2}}]`, 2, 2, none},
		"not a part":     {`[{gpus: {productNames: [H100, "NVIDIA L"]}, sharing: {replicas: 2}}]`, none, none, none},
		"no expression":  {`[{gpus: {productNames: [".*", "[A-Z]*"]}, sharing: {replicas: 2}}]`, none, none, none},
		"address":        {"[{gpus: {pciBusIDs: [0000:1b:00.0, 00000000:C1:00.0]}, sharing: {replicas: 2}}]", 2, 2, none},
		"index":          {"[{gpus: {indexes: [0]}, sharing: {replicas: 2}}]", 2, none, 2},
		"all must fit":   {"[{gpus: {indexes: [0], vendor: amd}, sharing: {replicas: 2}}]", none, none, 2},
		"first wins":     {`[{gpus: {indexes: [5]}, sharing: {replicas: 2}}, {gpus: {vendor: nvidia}, sharing: {replicas: 3}}, {sharing: {replicas: 4}}]`, 3, 2, 4},
		"no merging":     {`[{gpus: {vendor: nvidia}, extendedResource: {device: GPUReplica}}, {sharing: {replicas: 4}}]`, none, none, 4},
	} {
		t.Run(name, func(t *testing.T) {
			s := parse(t, "{rules: "+tt.rules+"}")
			assert.Equal(t, tt.h100, s.For(&h100).Replicas, h100.ProductName)
			assert.Equal(t, tt.l4, s.For(&l4).Replicas, l4.ProductName)
			assert.Equal(t, tt.amd, s.For(&mi).Replicas, mi.ProductName)
		})
	}
	assert.Equal(t, Default(), parse(t, "{rules: [{gpus: {vendor: amd}, sharing: {replicas: 2}}]}").For(&h100))
	assert.Equal(t, Default(), Unset().For(&h100))
}

// For is what the first rule that selects a GPU says of it, whatever it counts and
// whether it fits.
func (s *Profile) For(g *gpu.GPU) Desired {
	for i := range s.rules {
		if s.rules[i].gpus.selects(g) {
			return fit(s.rules[i].gpu, g.Vendor)
		}
	}
	return Default()
}

// Who changes what one GPU has does not change what the next has.
func TestGPUsDoNotShareMemory(t *testing.T) {
	s := parse(t, "{rules: [{sharing: {partitions: {profiles: [1g.10gb, cpx, 3g.40gb]}}}]}")
	s.For(&h100).Partitions[0] = "changed"
	assert.Equal(t, []string{"cpx"}, s.For(&mi).Partitions)
	assert.Equal(t, []string{"1g.10gb", "3g.40gb"}, s.For(&h100).Partitions)
}

func TestBadProfilesAreRefused(t *testing.T) {
	for name, tt := range map[string]struct{ rule, want string }{
		"misspelt key":     {"{sharing: {replica: 2}}", "p.yaml: spec.rules[0].sharing.replica: unknown key; did you mean replicas?"},
		"misplaced key":    {"{replicas: 2}", "spec.rules[0].replicas: unknown key; it belongs to spec.rules[].sharing"},
		"no replicas":      {"{sharing: {replicas: 0}}", "p.yaml: spec.rules[0].sharing.replicas: is 0, it can be 1 to 1000"},
		"negative":         {"{sharing: {replicas: -1}}", "sharing.replicas: is -1, it can be 1 to 1000"},
		"too many":         {"{sharing: {replicas: 1001}}", "sharing.replicas: is 1001, it can be 1 to 1000"},
		"half a replica":   {"{sharing: {replicas: 1.5}}", "sharing.replicas: must be a whole number, not 1.5"},
		"no clients":       {"{sharing: {maxClients: 0}}", "sharing.maxClients: is 0, it can be 1 to 1000"},
		"too many clients": {"{sharing: {maxClients: 1001}}", "sharing.maxClients: is 1001, it can be 1 to 1000"},
		"fewer clients":    {"{sharing: {replicas: 10, maxClients: 9}}", "sharing.maxClients: is 9, and there are 10 replicas: each takes a client"},
		"fewer than default": {"{sharing: {maxClients: 4}}",
			"sharing.maxClients: is 4, and there are 10 replicas: each takes a client"},
		"more than MPS has":      {"{sharing: {strategy: MPS, maxClients: 49}}", "sharing.maxClients: is 49, and an MPS server takes 48 clients"},
		"more replicas than MPS": {"{sharing: {strategy: MPS, replicas: 49}}", "sharing.replicas: is 49, and an MPS server takes 48 clients"},
		"strategy":               {"{sharing: {strategy: mps}}", `sharing.strategy: is "mps", it can be TimeSlicing or MPS`},
		"MPS on AMD":             {"{gpus: {vendor: amd}, sharing: {strategy: MPS}}", "sharing.strategy: is MPS, which AMD's GPUs do not have"},
		"MPS on partitions": {"{sharing: {strategy: MPS, partitions: {profiles: [1g.10gb]}}}",
			"sharing.partitions: cannot be shared with strategy MPS, which is for whole GPUs; use TimeSlicing"},
		"time slice":         {"{sharing: {timeSlice: Longest}}", `sharing.timeSlice: is "Longest", it can be Default, Short, Medium or Long`},
		"time slice of MPS":  {"{sharing: {strategy: MPS, timeSlice: Long}}", "sharing.timeSlice: is for strategy TimeSlicing only"},
		"time slice on AMD":  {"{gpus: {vendor: amd}, sharing: {timeSlice: Long}}", "sharing.timeSlice: cannot be set on AMD's GPUs"},
		"limits below":       {"{sharing: {maxMemoryLimitPercent: 99}}", "sharing.maxMemoryLimitPercent: is 99, it can be 100 to 10000"},
		"limits above":       {"{sharing: {maxMemoryLimitPercent: 10001}}", "sharing.maxMemoryLimitPercent: is 10001, it can be 100 to 10000"},
		"limits of none":     {"{sharing: {wholeGPUs: false, maxMemoryLimitPercent: 200}}", "sharing.maxMemoryLimitPercent: is for shares of whole GPUs, and wholeGPUs is false: leave it out"},
		"exclusive":          {"{sharing: {exclusiveProcess: true}}", "sharing.exclusiveProcess: is for strategy MPS only"},
		"plus variant":       {"{sharing: {partitions: {profiles: [1g.10gb+me]}}}", "sharing.partitions.profiles[0]: is 1g.10gb+me: partitions with extra engines are not shared; share those of 1g.10gb"},
		"gfx variant":        {"{sharing: {partitions: {profiles: [1g.24gb+gfx]}}}", "partitions.profiles[0]: is 1g.24gb+gfx: partitions with extra engines"},
		"no profile":         {"{sharing: {partitions: {profiles: [1g10gb]}}}", `partitions.profiles[0]: is "1g10gb", which is not a profile: they are spelt 1g.10gb as nvidia-smi mig -lgip spells it, or dpx, tpx, qpx, cpx`},
		"case of a profile":  {"{sharing: {partitions: {profiles: [CPX]}}}", `partitions.profiles[0]: is "CPX"; did you mean cpx?`},
		"the whole GPU":      {"{sharing: {partitions: {profiles: [spx]}}}", `partitions.profiles[0]: is "spx", which is not a profile`},
		"profile twice":      {"{sharing: {partitions: {profiles: [cpx, cpx]}}}", "partitions.profiles[1]: is there twice"},
		"no profiles":        {"{sharing: {partitions: {units: [Memory, Fraction]}}}", "sharing.partitions.profiles: is missing"},
		"empty profiles":     {"{sharing: {partitions: {profiles: []}}}", "sharing.partitions.profiles: names nothing; leave it out"},
		"the other vendor's": {"{gpus: {vendor: amd}, sharing: {partitions: {profiles: [1g.10gb]}}}", "partitions.profiles[0]: is 1g.10gb, a profile of NVIDIA's GPUs, and the rule is for those of AMD"},
		"units":              {"{sharing: {partitions: {profiles: [cpx], units: [Memory, Compute]}}}", `sharing.partitions.units[1]: is "Compute", it can be Memory or Fraction`},
		"no units":           {"{sharing: {partitions: {profiles: [cpx], units: []}}}", "sharing.partitions.units: names nothing; leave it out"},
		"unit twice":         {"{sharing: {partitions: {profiles: [cpx], units: [Memory, Memory]}}}", "sharing.partitions.units[1]: is Memory for the second time"},
		"resource":           {"{extendedResource: {device: Half}}", `p.yaml: spec.rules[0].extendedResource.device: is "Half", it can be GPU, GPUReplica, Partition, Auto, AutoReplica`},
		"resource of what":   {"{extendedResource: {profile: cpx}}", "spec.rules[0].extendedResource.device: is missing; it can be GPU, GPUReplica, Partition, Auto, AutoReplica"},
		"resource profile":   {"{extendedResource: {device: Partition, profile: spx}}", `extendedResource.profile: is "spx", which is not a profile`},
		"resource of whole":  {"{extendedResource: {device: GPU, profile: cpx}}", "extendedResource.profile: is for device: Partition, which needs it"},
		"resource with MPS":  {"{sharing: {strategy: MPS}, extendedResource: {device: AutoReplica}}", "extendedResource.device: is AutoReplica, and strategy MPS is for whole GPUs; use TimeSlicing, or GPUReplica"},
		"replicas of others": {"{sharing: {partitions: {profiles: [1g.10gb], replicas: [{profile: 3g.40gb, count: 2}]}}}", "sharing.partitions.replicas[0].profile: is 3g.40gb, which is not among profiles"},
		"replicas twice":     {"{sharing: {partitions: {profiles: [cpx], replicas: [{profile: cpx, count: 2}, {profile: cpx, count: 3}]}}}", "replicas[1].profile: is cpx for the second time"},
		"no replicas at all": {"{sharing: {partitions: {profiles: [cpx], replicas: [{profile: cpx, count: 0}]}}}", "replicas[0].count: is 0, it can be 1 to 1000"},
		"MIG names":          {"{sharing: {partitions: {profiles: [1g.10gb], extendedResource: {device: PartitionReplica}}}}", "sharing.partitions.extendedResource.device: is PartitionReplica, a share by fraction: add Fraction to units"},
		"no such MIG names":  {"{sharing: {partitions: {profiles: [1g.10gb], extendedResource: {device: GPU}}}}", `sharing.partitions.extendedResource.device: is "GPU", it can be Partition or PartitionReplica`},
		"resource case":      {"{extendedResource: {device: gpuReplica}}", `extendedResource.device: is "gpuReplica"; did you mean GPUReplica?`},
		"no replicas to get": {"{sharing: {wholeGPUs: false}, extendedResource: {device: GPUReplica}}", "extendedResource.device: is GPUReplica, and sharing.wholeGPUs is false: there are no replicas"},
		"resource of AMD":    {"{gpus: {vendor: nvidia}, extendedResource: {device: Partition, profile: cpx}}", "extendedResource.profile: is cpx, a profile of AMD's GPUs, and the rule is for those of NVIDIA"},
		"vendor":             {"{gpus: {vendor: NVIDIA}}", `p.yaml: spec.rules[0].gpus.vendor: is "NVIDIA", it can be nvidia or amd`},
		"address":            {"{gpus: {pciBusIDs: [c1:00.0]}}", `gpus.pciBusIDs[0]: "c1:00.0" is not a PCI address of the form 0000:c1:00.0`},
		"no addresses":       {"{gpus: {pciBusIDs: []}}", "gpus.pciBusIDs: names nothing; leave it out"},
		"empty product":      {`{gpus: {productNames: [""]}}`, "gpus.productNames[0]: is empty"},
		"negative index":     {"{gpus: {indexes: [0, -1]}}", "gpus.indexes[1]: is -1, the first GPU is 0"},
		"index twice":        {"{gpus: {indexes: [1, 1]}}", "gpus.indexes[1]: is there twice"},
		"PCI ids":            {"{gpus: {pciIDs: [0x2330, '233010DE']}}", `gpus.pciIDs[0]: must be a string, not 9008: put it in quotes`},
		"short PCI id":       {"{gpus: {pciIDs: ['0x2330']}}", `gpus.pciIDs[0]: is "0x2330", it must be device and vendor like 0x233010DE, or with the subsystem's like 0x233010DE:0x16C110DE`},
		"no GPUs":            {"{gpus: {count: 0}}", "gpus.count: is 0, it must be at least 1"},
		"MIG mode":           {"{mig: {mode: static}}", `mig.mode: is "static", it can be Dynamic, Static, NoPartitions or Disabled`},
		"MIG off as YAML":    {"{mig: {mode: Off}}", `mig.mode: must be a string, not false: put it in quotes`},
		"MIG on AMD":         {"{gpus: {vendor: amd}, mig: {}}", "spec.rules[0].mig: is for NVIDIA's GPUs, and the rule is for those of AMD; use xcp.computePartition"},
		"AMD on NVIDIA":      {"{gpus: {vendor: nvidia}, xcp: {}}", "spec.rules[0].xcp: is for AMD's GPUs, and the rule is for those of NVIDIA; use mig"},
		"static nothing":     {"{mig: {mode: Static}}", "mig.partitions: is missing: mode Static makes the partitions that it names"},
		"static empty":       {"{mig: {mode: Static, partitions: []}}", "mig.partitions: is missing"},
		"partitions":         {"{mig: {partitions: [{profile: 1g}]}}", "mig.partitions: is for mode Static only; for Dynamic use profiles"},
		"profiles":           {"{mig: {mode: Static, partitions: [{profile: 1g}], profiles: [1g]}}", "mig.profiles: is for mode Dynamic only"},
		"wholeGPUs":          {"{mig: {mode: Disabled, wholeGPUs: true}}", "mig.wholeGPUs: is for mode Dynamic only"},
		"no MIG profiles":    {"{mig: {profiles: []}}", "mig.profiles: names nothing; leave it out"},
		"MIG profile":        {"{mig: {profiles: [cpx]}}", `mig.profiles[0]: is "cpx", which is no MIG profile: they are spelt 1g.10gb as nvidia-smi mig -lgip does, or 1g`},
		"case of MIG":        {"{mig: {profiles: [1G.10GB]}}", `mig.profiles[0]: is "1G.10GB"; did you mean 1g.10gb?`},
		"MIG profile twice":  {"{mig: {profiles: [1g, 1g]}}", "mig.profiles[1]: is there twice"},
		"static profile":     {"{mig: {mode: Static, partitions: [{profile: 1c.3g.40gb}]}}", `mig.partitions[0].profile: is "1c.3g.40gb", which is no MIG profile`},
		"static twice":       {"{mig: {mode: Static, partitions: [{profile: 1g, count: 1}, {profile: 1g}]}}", "mig.partitions[1].profile: is 1g for the second time; put them together"},
		"two rests":          {"{mig: {mode: Static, partitions: [{profile: 1g}, {profile: 2g}]}}", "mig.partitions[1].count: is missing: one profile can fill what is left, and 1g does"},
		"static count":       {"{mig: {mode: Static, partitions: [{profile: 1g, count: 17}]}}", "mig.partitions[0].count: is 17, it can be 1 to 16"},
		"compute mode":       {"{xcp: {computePartition: cpx}}", `xcp.computePartition: is "cpx"; did you mean CPX?`},
		"memory mode":        {"{xcp: {memoryPartition: NPS3}}", `xcp.memoryPartition: is "NPS3", it can be NPS1, NPS2, NPS4, NPS8`},
		"too many rules":     {strings.Repeat("{gpus: {count: 1}},", 17), "spec.rules: has 17 entries, it can have 16"},
		"too many indexes":   {"{gpus: {indexes: [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]}}", "gpus.indexes: has 17 entries, it can have 16"},
		"never reached":      {"{}, {gpus: {vendor: amd}}", "spec.rules[1]: holds for no GPU, because the rule before it selects every GPU"},
		"replica of static":  {"{mig: {mode: Static, partitions: [{profile: 1g}]}, extendedResource: {device: GPUReplica}}", "spec.rules[0].extendedResource.device: is GPUReplica, a share of the whole GPU, which mig does not offer"},
		"MPS of static":      {"{mig: {mode: NoPartitions}, sharing: {strategy: MPS}}", "spec.rules[0].sharing: has strategy MPS or a timeSlice, which are for shares of whole GPUs"},
		"slice of static":    {"{mig: {wholeGPUs: false}, sharing: {timeSlice: Long}}", "spec.rules[0].sharing: has strategy MPS or a timeSlice, which are for shares of whole GPUs"},
		"slice of no shares": {"{sharing: {wholeGPUs: false, timeSlice: Long}}", "spec.rules[0].sharing: has strategy MPS or a timeSlice, which are for shares of whole GPUs"},
		"replicas of none":   {"{sharing: {wholeGPUs: false, replicas: 4}}", "spec.rules[0].sharing: has replicas, maxClients or failRequestsGreaterThanOne, and offers no shares"},
		"clients of none":    {"{sharing: {wholeGPUs: false, maxClients: 10}}", "spec.rules[0].sharing: has replicas, maxClients or failRequestsGreaterThanOne, and offers no shares"},
		"one client of none": {"{sharing: {wholeGPUs: false, failRequestsGreaterThanOne: true}}", "spec.rules[0].sharing: has replicas, maxClients or failRequestsGreaterThanOne, and offers no shares"},
		"shares of no MIG":   {"{mig: {mode: Disabled}, sharing: {partitions: {profiles: [1g.10gb]}}}", "spec.rules[0].sharing: partitions.profiles has MIG profiles, and mig.mode excludes partitions"},
		"unchanged MIG":      {"{unchanged: true, mig: {}}", "spec.rules[0].mig: changes GPUs, and unchanged keeps them as they are: leave one out"},
		"unchanged mode":     {"{unchanged: true, xcp: {}}", "spec.rules[0].xcp: changes GPUs, and unchanged keeps them as they are: leave one out"},
		"MIG support":        {"{gpus: {migSupport: capable}}", `gpus.migSupport: is "capable", it can be Capable or Incapable`},
		"MIG support of AMD": {"{gpus: {vendor: amd, migSupport: Capable}}", "gpus.migSupport: selects NVIDIA's GPUs, and vendor those of AMD"},
		"two at once":        {"{sharing: {replicas: 0}}, {extendedResource: {device: Half}}", "sharing.replicas: is 0, it can be 1 to 1000; spec.rules[1]"},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := Parse("p.yaml", []byte(head+"spec: {rules: ["+tt.rule+"]}"))
			require.ErrorContains(t, err, tt.want)
			assert.Nil(t, s)
		})
	}
}

// What a rule says of shares that others of its settings offer is accepted.
func TestSettingsOfSharesWithEffect(t *testing.T) {
	for _, rule := range []string{
		"{sharing: {wholeGPUs: false, replicas: 4, partitions: {profiles: [1g.10gb]}}}",
		"{sharing: {wholeGPUs: false, replicas: 4}, extendedResource: {device: AutoReplica}}",
		"{sharing: {wholeGPUs: false}}",
		"{mig: {mode: Disabled}, sharing: {strategy: MPS}}",
		"{mig: {mode: Disabled}, sharing: {partitions: {profiles: [cpx]}}}",
		"{mig: {mode: Static, partitions: [{profile: 1g}]}, sharing: {partitions: {profiles: [1g.10gb]}}}",
		"{mig: {mode: Disabled}, extendedResource: {device: GPUReplica}}",
		"{unchanged: true, sharing: {replicas: 4}}",
	} {
		parse(t, "{rules: ["+rule+"]}")
	}
}

func TestSelects(t *testing.T) {
	for rule, want := range map[string]bool{
		"{gpus: {vendor: amd}}": false,
		"{gpus: {vendor: amd}}, {gpus: {productNames: [NVIDIA L4]}}": true,
		"{gpus: {indexes: [0]}}": true,
		"{gpus: {indexes: [1]}}": false,
		"{}":                     true,
	} {
		assert.Equal(t, want, parse(t, "{rules: ["+rule+"]}").Selects([]gpu.GPU{h100, l4}), rule)
	}
	assert.False(t, parse(t, "{rules: [{}]}").Selects(nil))
	assert.False(t, parse(t, "{rules: []}").Selects([]gpu.GPU{h100}), "no rule")
}

func TestOtherObjectsAreRefused(t *testing.T) {
	for document, want := range map[string]string{
		"spec: {}": `p.yaml: apiVersion: is "", it must be tranche.dev/v1beta1; kind: is "", it must be PartitionProfile; metadata.name: is missing`,
		"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: p}\ndata: {}":                          "p.yaml: data: unknown key",
		"apiVersion: tranche.dev/v1\nkind: PartitionProfile\nmetadata: {name: p}\nspec: {}":       `p.yaml: apiVersion: is "tranche.dev/v1", it must be tranche.dev/v1beta1`,
		"apiVersion: tranche.dev/v1beta1\nkind: PartitionProfiles\nmetadata: {name: p}\nspec: {}": `p.yaml: kind: is "PartitionProfiles", it must be PartitionProfile`,
		"": "p.yaml: it is empty",
	} {
		_, err := Parse("p.yaml", []byte(document))
		require.ErrorContains(t, err, want)
	}
}

// What passes makes sense for every GPU.
func FuzzParse(f *testing.F) {
	for _, spec := range []string{
		"{}", "{rules: [{}]}",
		"{rules: [{gpus: {vendor: amd, productNames: ['*MI300?*'], indexes: [0]}, sharing: {partitions: {profiles: [cpx]}}}, {}]}",
		"{rules: [{sharing: {strategy: MPS, replicas: 3, exclusiveProcess: true, failRequestsGreaterThanOne: true}, extendedResource: {device: GPUReplica}}]}",
		"{rules: [{gpus: {pciBusIDs: [0000:1b:00.0]}, sharing: {timeSlice: Short, maxClients: 100}, extendedResource: {device: Partition, profile: 1g.10gb}}]}",
	} {
		f.Add([]byte(head + "spec: " + spec))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := Parse("p.yaml", data)
		if err != nil {
			require.Nil(t, s)
			return
		}
		for _, g := range []gpu.GPU{h100, l4, mi} {
			sane(t, s.For(&g), g.Vendor)
		}
	})
}

func sane(t *testing.T, c Desired, vendor gpu.Vendor) {
	t.Helper()
	require.True(t, c.Replicas >= 1 && c.Replicas <= maxReplicas)
	require.True(t, c.MaxClients >= c.Replicas && c.MaxClients <= maxClients)
	if c.Strategy == gpu.MPS {
		require.Equal(t, gpu.NVIDIA, vendor)
		require.LessOrEqual(t, c.MaxClients, DefaultMaxClients)
		require.Empty(t, c.Partitions)
		require.Empty(t, c.TimeSlice)
	} else {
		require.Equal(t, gpu.TimeSlicing, c.Strategy)
		require.False(t, c.ExclusiveProcess)
	}
	for _, profile := range c.Partitions {
		require.Equal(t, vendor, vendorOf(profile))
		require.NotContains(t, profile, "+")
	}
	require.False(t, c.ExtendedResource.Device == v1beta1.DeviceGPUReplica && !c.Shared)
}
