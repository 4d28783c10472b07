package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

// The API server makes of pods what the tables say, which is what kubectl tranche convert makes.
func TestTranslation(t *testing.T) {
	tr := startTranslator(t)
	tr.each("kai", kaiPods())
	tr.each("kai", kaiPodsOf018())
	tr.each("hami", hamiPods())
	tr.each("nos", nosPods())
	for _, project := range []string{"kai", "hami", "nos"} {
		tr.each(project, podsThatNobodyServes())
	}
	for _, test := range podsThatNobodyServes() {
		_, err := tr.would("other", podOf(test.pod...))
		require.NoError(t, err, "the namespace has no project")
	}

	// A copy of a pod that was translated is as it was.
	first, err := tr.would("kai", podOf(withAnnotations("gpu-fraction", "0.5")))
	require.NoError(t, err)
	again, err := tr.would("kai", podOf(func(p *corev1.Pod) { p.Spec, p.Annotations = first.Spec, first.Annotations }))
	require.NoError(t, err)
	assert.Equal(t, said(first), said(again))

	// Without the label, nothing happens.
	tr.namespaces["none"] = tr.namespace
	for _, project := range []string{"other", "hami", "none"} {
		p, err := tr.would(project, podOf(withAnnotations("gpu-fraction", "7")))
		require.NoError(t, err)
		assert.Empty(t, said(p), project)
	}
}

// kaiPods are pods of a namespace of KAI's.
func kaiPods() table {
	only := func(template string) []string { return []string{"main: tranche=" + template} }
	fraction := func(value string) []change { return []change{withAnnotations("gpu-fraction", value)} }
	memory := func(value string) []change { return []change{withAnnotations("gpu-memory", value)} }
	const badFraction, badMemory = ", and it must be above 0, below 1 and have at most three decimals, as in 0.5",
		", and it must be a whole number of MiB from 1 to 1048576, as in 2000"
	tests := table{
		"half":        {fraction("0.5"), only("tranche-fraction-500")},
		"memory":      {memory("2000"), only("tranche-memory-2000mi")},
		"zeros":       {memory("0002000"), only("tranche-memory-2000mi")},
		"all memory":  {memory("1048576"), only("tranche-memory-1048576mi")},
		"nothing":     {nil, nil},
		"scheduler":   {[]change{byScheduler("kai-scheduler")}, nil},
		"Run:ai's":    {[]change{byScheduler("runai-scheduler"), withAnnotations("gpu-fraction", "0.5")}, only("tranche-fraction-500")},
		"slices":      {[]change{withAnnotations("gpu-fraction", "0.5", "kai.scheduler/gpu-compute-sharing-mode", "time-slicing")}, only("tranche-fraction-500")},
		"another's":   {[]change{byScheduler("mine")}, []string{"mine"}},
		"whole GPU":   {[]change{byScheduler("kai-scheduler"), withLimits(0, "nvidia.com/gpu", "1")}, []string{"main: nvidia.com/gpu: 1"}},
		"both":        {[]change{withAnnotations("gpu-fraction", "0.25"), byScheduler("kai-scheduler")}, only("tranche-fraction-250")},
		"two GPUs":    {[]change{withAnnotations("gpu-fraction", "0.5", "gpu-fraction-num-devices", "2")}, only("tranche-fraction-500-x2")},
		"one GPU":     {[]change{withAnnotations("gpu-memory", "2000", "gpu-fraction-num-devices", "01")}, only("tranche-memory-2000mi")},
		"MPS":         {[]change{withAnnotations("gpu-fraction", "0.5", "mps", "true")}, only("tranche-fraction-500-mps")},
		"no MPS":      {[]change{withAnnotations("gpu-fraction", "0.5", "mps", "false")}, only("tranche-fraction-500")},
		"sidecar":     {[]change{withAnnotations("gpu-fraction", "0.5", "gpu-fraction-container-name", "sidecar")}, []string{"sidecar: tranche=tranche-fraction-500"}},
		"to begin":    {[]change{withAnnotations("gpu-fraction", "0.5", "gpu-fraction-container-name", "prepare")}, []string{"prepare: tranche=tranche-fraction-500"}},
		"other claim": {[]change{withAnnotations("gpu-fraction", "0.5"), withClaim("mine", "mine")}, []string{"main: mine=mine", "main: tranche=tranche-fraction-500", "sidecar: mine="}},
		"other limit": {[]change{withAnnotations("gpu-fraction", "0.5"), withLimits(0, "cpu", "1")}, []string{"main: tranche=tranche-fraction-500", "main: cpu: 1"}},

		"a claim of that name": {[]change{withAnnotations("gpu-fraction", "0.5"), withClaim("tranche", "mine")}, []string{"refused: the pod has a claim of its own with the name tranche"}},
		"a claim for nobody": {[]change{withAnnotations("gpu-fraction", "0.5"), withClaim("tranche", "tranche-fraction-500"), func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Claims = nil }},
			[]string{"refused: the annotations were not translated, and the pod would run without a GPU"}},
		"two annotations":     {[]change{withAnnotations("gpu-fraction", "0.5", "gpu-memory", "2000")}, []string{"refused: annotations gpu-fraction and gpu-memory exclude each other: remove one"}},
		"whole GPU and part":  {[]change{withAnnotations("gpu-fraction", "0.5"), withLimits(1, "nvidia.com/gpu", "1")}, []string{"refused: the pod asks for a part of a GPU by an annotation and for nvidia.com/gpu by a limit: remove one"}},
		"no such container":   {[]change{withAnnotations("gpu-fraction", "0.5", "gpu-fraction-container-name", "x")}, []string{"refused: annotation gpu-fraction-container-name names 'x', and the pod has no such container"}},
		"devices of nothing":  {[]change{withAnnotations("gpu-fraction-num-devices", "2")}, []string{"refused: annotation gpu-fraction-num-devices needs gpu-fraction or gpu-memory"}},
		"MPS of nothing":      {[]change{withAnnotations("mps", "true")}, []string{"refused: annotation mps needs gpu-fraction or gpu-memory"}},
		"MPS on two":          {[]change{withAnnotations("gpu-fraction", "0.5", "mps", "true", "gpu-fraction-num-devices", "2")}, []string{"refused: annotation mps with more than one device: a process can use one MPS daemon only"}},
		"no devices":          {[]change{withAnnotations("gpu-fraction", "0.5", "gpu-fraction-num-devices", "0")}, []string{"refused: annotation gpu-fraction-num-devices is '0', and it must be from 1 to 16"}},
		"too many devices":    {[]change{withAnnotations("gpu-fraction", "0.5", "gpu-fraction-num-devices", "17")}, []string{"refused: is '17', and it must be from 1 to 16"}},
		"devices of no digit": {[]change{withAnnotations("gpu-fraction", "0.5", "gpu-fraction-num-devices", "two")}, []string{"refused: is 'two', and it must be from 1 to 16"}},
		"much text":           {fraction(strings.Repeat("0", 100000)), []string{"refused: is '" + strings.Repeat("0", 40) + "…'" + badFraction}},
	}
	for value, thousandths := range map[string]string{".5": "500", "0.50": "500", "0.5000000": "500", "0.001": "1", "0.05": "50", "0.333": "333", "0.999": "999"} {
		tests["fraction "+value] = table{"": {fraction(value), only("tranche-fraction-" + thousandths)}}[""]
	}
	for _, value := range []string{"", "0", "0.0", "1", "1.0", "1.5", "-0.5", "+0.5", "5e-1", "1e9", "NaN", "Inf", "0.3333", "0.0001", "0,5", "half", "0x1p-1", " 0.5", "0.5\n"} {
		tests["fraction "+value] = table{"": {fraction(value), []string{"refused: annotation gpu-fraction is '" + strings.ReplaceAll(value, "\n", " ") + "'" + badFraction}}}[""]
	}
	for _, value := range []string{"", "0", "000", "-1", "1048577", "1e9", "99999999999999999999999", "2000Mi", "1.5", "NaN", " 1"} {
		tests["memory "+value] = table{"": {memory(value), []string{"refused: annotation gpu-memory is '" + value + "'" + badMemory}}}[""]
	}
	return tests
}

// kaiPodsOf018 name the container in the annotation, as KAI 0.18 and Run:ai 3.0 do.
func kaiPodsOf018() table {
	const main, bounds = "nvidia.com/container.main.", "', and it must be an amount from 1Mi to 1Ti, as in 8Gi or 7680Mi"
	only := func(template string) []string { return []string{"main: tranche=" + template} }
	refused := func(parts ...string) []string { return []string{"refused: annotation " + strings.Join(parts, "")} }
	with := func(pairs ...string) []change {
		return []change{withAnnotations(pairs...), byScheduler("kai-scheduler")}
	}
	var many, others []string
	for i := range 300 {
		many = append(many, fmt.Sprintf("nvidia.com/container.c%d.gpu-memory.request", i), "1Gi")
		others = append(others, fmt.Sprintf("example.com/%d", i), "1Gi")
	}
	tests := table{
		// KAI's documentation has these, and its webhook adds the second amount.
		"request":           {with(main+"gpu-memory.request", "7680Mi"), only("tranche-memory-7680mi")},
		"limit":             {with(main+"gpu-memory.limit", "2Gi"), only("tranche-memory-2048mi")},
		"both":              {with(main+"gpu-memory.request", "4096Mi", main+"gpu-memory.limit", "4Gi"), only("tranche-memory-4096mi")},
		"older and new":     {with("gpu-memory", "2048", main+"gpu-memory.request", "2Gi"), only("tranche-memory-2048mi")},
		"older with limit":  {with("gpu-memory", "2048", "gpu-memory.limit", "2Gi"), only("tranche-memory-2048mi")},
		"two GPUs":          {with(main+"gpu-memory.request", "7680Mi", "gpu-fraction-num-devices", "2"), only("tranche-memory-7680mi-x2")},
		"SM sharing":        {with(main+"gpu-memory.request", "8Gi", main+"gpu-compute.mode", "sm-sharing"), only("tranche-memory-8192mi-mps")},
		"of a fraction":     {with("gpu-fraction", "0.5", main+"gpu-compute.mode", "sm-sharing"), only("tranche-fraction-500-mps")},
		"older mode":        {with("gpu-fraction", "0.5", "kai.scheduler/gpu-compute-sharing-mode", "sm-sharing"), only("tranche-fraction-500-mps")},
		"mode twice":        {with("gpu-fraction", "0.5", "kai.scheduler/gpu-compute-sharing-mode", "sm-sharing", main+"gpu-compute.mode", "sm-sharing", "mps", "true"), only("tranche-fraction-500-mps")},
		"slices":            {with(main+"gpu-memory.request", "8Gi", main+"gpu-compute.mode", "time-slicing"), only("tranche-memory-8192mi")},
		"300 annotations":   {with(others...), nil},
		"mode alone":        {with(main+"gpu-compute.mode", "time-slicing"), nil},
		"sidecar":           {with("nvidia.com/container.sidecar.gpu-memory.limit", "1Gi"), []string{"sidecar: tranche=tranche-memory-1024mi"}},
		"mode of a sidecar": {with("gpu-fraction", "0.5", "nvidia.com/container.sidecar.gpu-compute.mode", "time-slicing"), []string{"sidecar: tranche=tranche-fraction-500"}},
		"to begin":          {with("nvidia.com/container.prepare.gpu-memory.request", "1Gi", "gpu-fraction-container-name", "prepare"), []string{"prepare: tranche=tranche-memory-1024mi"}},

		"a burst":          {with(main+"gpu-memory.request", "4096Mi", main+"gpu-memory.limit", "8192Mi"), only("tranche-memory-4096mi-limit-8192mi")},
		"an older burst":   {with("gpu-memory", "2048", "gpu-memory.limit", "3Gi"), only("tranche-memory-2048mi-limit-3072mi")},
		"a burst on two":   {with("gpu-memory", "2048", "gpu-memory.limit", "3Gi", main+"gpu-memory.limit", "3072Mi", "gpu-fraction-num-devices", "2"), only("tranche-memory-2048mi-limit-3072mi-x2")},
		"a burst with MPS": {with("gpu-memory", "2048", "gpu-memory.limit", "3Gi", "mps", "true"), only("tranche-memory-2048mi-limit-3072mi-mps")},
		"a limit below": {with(main+"gpu-memory.request", "8192Mi", main+"gpu-memory.limit", "4Gi"),
			refused(main, "gpu-memory.limit is '4Gi', which is less than ", main, "gpu-memory.request '8192Mi': raise it, or remove one")},
		"two limits":           {with("gpu-memory.limit", "4Gi", main+"gpu-memory.limit", "8Gi"), refused("gpu-memory.limit is '4Gi', and ", main, "gpu-memory.limit '8Gi': write the same, or remove one")},
		"two amounts":          {with("gpu-memory", "2048", main+"gpu-memory.request", "1Gi"), refused(main, "gpu-memory.request is '1Gi', and gpu-memory '2048': write the same, or remove one")},
		"fraction and amount":  {with("gpu-fraction", "0.5", main+"gpu-memory.limit", "1Gi"), []string{"refused: annotations gpu-fraction and " + main + "gpu-memory.limit exclude each other: remove one"}},
		"two containers":       {with(main+"gpu-memory.request", "1Gi", "nvidia.com/container.sidecar.gpu-memory.request", "1Gi"), refused(main, "gpu-memory.request names container 'main', and other annotations name another: only one container")},
		"another container":    {with(main+"gpu-memory.request", "1Gi", "gpu-fraction-container-name", "sidecar"), refused("gpu-fraction-container-name names container 'sidecar', and other annotations name another")},
		"300 containers":       {with(many...), refused("nvidia.com/container.c0.gpu-memory.request names container 'c0', and other annotations name another")},
		"no such container":    {with("nvidia.com/container.x.gpu-memory.request", "1Gi"), refused("nvidia.com/container.x.gpu-memory.request names 'x', and the pod has no such container")},
		"whole GPU and part":   {append(with(main+"gpu-memory.request", "1Gi"), withLimits(1, "nvidia.com/gpu", "1")), []string{"refused: the pod asks for a part of a GPU by an annotation and for nvidia.com/gpu by a limit"}},
		"no such mode":         {with(main+"gpu-memory.request", "1Gi", main+"gpu-compute.mode", "mps"), refused(main, "gpu-compute.mode is 'mps', and it must be time-slicing or sm-sharing")},
		"no mode":              {with("gpu-fraction", "0.5", "kai.scheduler/gpu-compute-sharing-mode", ""), refused("kai.scheduler/gpu-compute-sharing-mode is '', and it must be")},
		"two modes":            {with("gpu-fraction", "0.5", "kai.scheduler/gpu-compute-sharing-mode", "time-slicing", main+"gpu-compute.mode", "sm-sharing"), refused("kai.scheduler/gpu-compute-sharing-mode is 'time-slicing', and ", main, "gpu-compute.mode asks for MPS: remove one")},
		"SM sharing on two":    {with(main+"gpu-memory.request", "1Gi", main+"gpu-compute.mode", "sm-sharing", "gpu-fraction-num-devices", "2"), refused(main, "gpu-compute.mode with more than one device")},
		"SM sharing of none":   {with(main+"gpu-compute.mode", "sm-sharing"), refused(main, "gpu-compute.mode needs gpu-fraction or gpu-memory")},
		"a claim of that name": {append(with(main+"gpu-memory.request", "1Gi"), withClaim("tranche", "mine")), []string{"refused: the pod has a claim of its own with the name tranche"}},
	}
	for value, mib := range map[string]string{
		"1Mi": "1", "1048576": "1", "1048577": "2", "1024M": "977", "1.5Gi": "1536", "0.5Ti": "524288", "008Gi": "8192", "1Ti": "1048576", "1048576Ki": "1024", "2000000k": "1908", "1T": "953675",
	} {
		tests["amount "+value] = table{"": {with(main+"gpu-memory.request", value), only("tranche-memory-" + mib + "mi")}}[""]
	}
	for _, value := range []string{
		"", "0", "0Mi", "1", "1Ki", "1048575", "1025Gi", "2Ti", "1048577Mi", "-1Gi", "+1Gi", " 1Gi", "1 Gi", "1Gi ", "1GiB", "1gi", "1Gi1", ".5Gi", "1.Gi", "1,5Gi", "1e9", "1E9", "1e-9", "1000m", "1P", "8Ei",
		"1e1000000000", "12345678901234567890e1000000000", "99999999999999999999999Ti", "1e-1000000000", "NaN", "Inf", "0x10", "８Gi", "1Gi'", "half",
	} {
		tests["amount "+value] = table{"": {with(main+"gpu-memory.request", value), refused(main, "gpu-memory.request is '", value, bounds)}}[""]
	}
	for name, value := range map[string]string{"long": strings.Repeat("1", 200000), "line": "1Gi\n"} {
		tests["amount that is a "+name] = table{"": {with(main+"gpu-memory.limit", value), refused(main, "gpu-memory.limit is '")}}[""]
	}
	return tests
}

// hamiPods are pods of a namespace of HAMi's.
func hamiPods() table {
	main := func(template string) []string { return []string{"main: tranche-0=" + template} }
	amd := func(template string) []string { return []string{"main: tranche-amd-0=" + template} }
	limits := func(pairs ...string) []change { return []change{withLimits(0, pairs...)} }
	selecting := func(annotations ...string) []change {
		return []change{withAnnotations(annotations...), withLimits(0, "nvidia.com/gpu", "1", "nvidia.com/gpumem", "3000")}
	}
	return table{
		"memory":        {limits("nvidia.com/gpu", "1", "nvidia.com/gpumem", "3000"), main("tranche-memory-3000mi")},
		"no count":      {limits("nvidia.com/gpumem", "3k"), main("tranche-memory-3000mi")},
		"two GPUs":      {limits("nvidia.com/gpu", "2", "nvidia.com/gpumem", "3000", "nvidia.com/gpucores", "30"), main("tranche-memory-3000mi-compute-30-x2")},
		"percentage":    {limits("nvidia.com/gpu", "1", "nvidia.com/gpumem-percentage", "50"), main("tranche-fraction-500")},
		"all of it":     {limits("nvidia.com/gpu", "1", "nvidia.com/gpumem-percentage", "100"), main("tranche-gpu")},
		"all but cores": {limits("nvidia.com/gpumem-percentage", "100", "nvidia.com/gpucores", "50"), main("tranche-fraction-1000-compute-50")},
		"cores":         {limits("nvidia.com/gpu", "1", "nvidia.com/gpucores", "50"), main("tranche-fraction-1000-compute-50")},
		"all cores":     {limits("nvidia.com/gpu", "2", "nvidia.com/gpucores", "100"), main("tranche-gpu-x2")},
		"no cores":      {limits("nvidia.com/gpu", "1", "nvidia.com/gpumem", "1", "nvidia.com/gpucores", "0"), main("tranche-memory-1mi")},
		"whole GPU":     {limits("nvidia.com/gpu", "1"), []string{"main: nvidia.com/gpu: 1"}},
		"scheduler":     {[]change{byScheduler("hami-scheduler"), withLimits(0, "nvidia.com/gpumem", "1")}, main("tranche-memory-1mi")},
		"nothing":       {nil, nil},
		"older count":   {limits("nvidia.com/vgpu", "2", "nvidia.com/gpumem", "3000"), main("tranche-memory-3000mi-x2")},
		"count alone":   {limits("nvidia.com/vgpu", "2"), main("tranche-gpu-x2")},
		"all of three":  {limits("nvidia.com/vgpu", "1", "nvidia.com/gpumem-percentage", "100", "nvidia.com/gpucores", "100"), main("tranche-gpu")},
		"three": {[]change{withLimits(-1, "nvidia.com/gpumem", "1"), withLimits(0, "nvidia.com/gpumem", "2"), withLimits(1, "nvidia.com/gpumem", "3", "amd.com/gpumem", "4")}, []string{
			"prepare: tranche-init-0=tranche-memory-1mi", "main: tranche-0=tranche-memory-2mi", "sidecar: tranche-1=tranche-memory-3mi", "sidecar: tranche-amd-1=tranche-amd-memory-4mi",
		}},
		"other claim": {[]change{withLimits(0, "nvidia.com/gpumem", "2", "cpu", "1"), withClaim("mine", "mine")}, []string{"main: mine=mine", "main: tranche-0=tranche-memory-2mi", "main: cpu: 1", "sidecar: mine="}},

		"AMD memory":    {limits("amd.com/gpu", "1", "amd.com/gpumem", "4000"), amd("tranche-amd-memory-4000mi")},
		"AMD all cores": {limits("amd.com/gpu", "2", "amd.com/gpucores", "100"), amd("tranche-amd-gpu-x2")},
		"AMD whole":     {limits("amd.com/gpu", "1"), []string{"main: amd.com/gpu: 1"}},
		"AMD type":      {[]change{withAnnotations("amd.com/use-gputype", "MI300X", "amd.com/nouse-gpu-uuid", "ABC"), withLimits(0, "amd.com/gpu", "1")}, amd("tranche-amd-gpu.type-mi300x.notuuid-abc")},

		"type":          {selecting("nvidia.com/use-gputype", "A100"), main("tranche-memory-3000mi.type-a100")},
		"types":         {selecting("nvidia.com/use-gputype", " NVIDIA A100-SXM4, V100 ,", "nvidia.com/nouse-gputype", "T4"), main("tranche-memory-3000mi.type-nvidia-a100-sxm4.type-v100.nottype-t4")},
		"UUID":          {selecting("nvidia.com/use-gpuuuid", "GPU-1aB", "nvidia.com/nouse-gpuuuid", "GPU-2"), main("tranche-memory-3000mi.uuid-gpu-1ab.notuuid-gpu-2")},
		"no type":       {selecting("nvidia.com/use-gputype", ""), main("tranche-memory-3000mi")},
		"type of whole": {[]change{withAnnotations("nvidia.com/use-gputype", "A100"), withLimits(0, "nvidia.com/gpu", "2")}, main("tranche-gpu-x2.type-a100")},
		"type of none":  {[]change{withAnnotations("nvidia.com/use-gputype", "A/100")}, nil},

		"no memory":          {limits("nvidia.com/gpumem", "0"), []string{"refused: container main: nvidia.com/gpumem is 0, and it must be a whole number of MiB from 1 to 1048576"}},
		"negative memory":    {limits("nvidia.com/gpumem", "-5"), []string{"refused: must be greater than or equal to 0"}},
		"half a MiB":         {limits("nvidia.com/gpumem", "500m"), []string{"refused: must be an integer"}},
		"more than memory":   {limits("nvidia.com/gpumem", "1e9"), []string{"refused: nvidia.com/gpumem is 1e9, and it must be"}},
		"much more":          {limits("nvidia.com/gpumem", "1e30"), []string{"refused: and it must be"}},
		"no GPUs":            {limits("nvidia.com/gpu", "0", "nvidia.com/gpumem", "1"), []string{"refused: nvidia.com/gpu is 0, and it must be from 1 to 16"}},
		"too many GPUs":      {limits("nvidia.com/gpu", "17", "nvidia.com/gpumem", "1"), []string{"refused: nvidia.com/gpu is 17, and it must be from 1 to 16"}},
		"two counts":         {limits("nvidia.com/gpu", "1", "nvidia.com/vgpu", "1", "nvidia.com/gpumem", "1"), []string{"refused: nvidia.com/gpu and nvidia.com/vgpu exclude each other: remove one"}},
		"too many vGPUs":     {limits("nvidia.com/vgpu", "17"), []string{"refused: nvidia.com/vgpu is 17, and it must be from 1 to 16"}},
		"percentage of 101":  {limits("nvidia.com/gpumem-percentage", "101"), []string{"refused: nvidia.com/gpumem-percentage is 101, and it must be a whole number from 1 to 100"}},
		"two amounts":        {limits("nvidia.com/gpumem-percentage", "10", "nvidia.com/gpumem", "1"), []string{"refused: nvidia.com/gpumem and nvidia.com/gpumem-percentage exclude each other: remove one"}},
		"too many cores":     {limits("nvidia.com/gpucores", "101"), []string{"refused: nvidia.com/gpucores is 101, and it must be a whole number from 0 to 100"}},
		"reserved":           {limits("nvidia.com/gpumem", "1", "nvidia.com/gpucores", "100"), []string{"refused: nvidia.com/gpucores is 100, which reserves a whole GPU in HAMi: remove it, or the amount of memory"}},
		"priority":           {limits("nvidia.com/gpumem", "1", "nvidia.com/priority", "1"), []string{"refused: nvidia.com/priority has no counterpart: remove it"}},
		"two problems":       {limits("nvidia.com/gpumem", "0", "nvidia.com/priority", "1"), []string{"refused: nvidia.com/priority has no counterpart: remove it; container main: nvidia.com/gpumem is 0"}},
		"MIG":                {selecting("nvidia.com/vgpu-mode", "mig"), []string{"refused: annotation nvidia.com/vgpu-mode has no counterpart: ask for a MIG partition by a claim"}},
		"NUMA":               {selecting("nvidia.com/numa-bind", "true"), []string{"refused: annotation nvidia.com/numa-bind has no counterpart"}},
		"AMD cores":          {limits("amd.com/gpumem", "1", "amd.com/gpucores", "50"), []string{"refused: amd.com/gpucores is 50, and nothing limits the compute of a share of an AMD GPU"}},
		"type with a slash":  {selecting("nvidia.com/use-gputype", "A/100"), []string{"refused: the annotations of nvidia.com select a type or UUID by 'a/100', and it may have letters, digits, spaces, underscores and dashes only"}},
		"type that is long":  {selecting("nvidia.com/use-gputype", strings.Repeat("a", 64)), []string{"refused: the annotations of nvidia.com select a type or UUID by 'aaaa"}},
		"types that are":     {selecting("nvidia.com/use-gputype", strings.Repeat("a100,", 36)), []string{"refused: the annotations of nvidia.com select GPUs by more than 180 characters: write a claim, as kubectl tranche convert does"}},
		"types without end":  {selecting("nvidia.com/use-gputype", strings.Repeat("a100,", 200)), []string{"refused: select GPUs by more than 180 characters"}},
		"three UUIDs":        {selecting("nvidia.com/use-gpuuuid", uuids(3)), main("tranche-memory-3000mi" + strings.ReplaceAll(","+strings.ToLower(uuids(3)), ",", ".uuid-"))},
		"four UUIDs":         {selecting("nvidia.com/use-gpuuuid", uuids(4)), []string{"refused: select GPUs by more than 180 characters"}},
		"claim of that name": {[]change{withLimits(0, "nvidia.com/gpumem", "2"), withClaim("tranche-0", "mine")}, []string{"refused: the pod has a claim of its own with the name tranche-0"}},
	}
}

// uuids are UUIDs of n GPUs.
func uuids(n int) string {
	return strings.TrimSuffix(strings.Repeat("GPU-03f69c50-207a-2038-9b45-23cac89cb67d,", n), ",")
}

// podsThatNobodyServes are the same for any project: what nobody translates or serves is refused, and what can be
// served stays.
func podsThatNobodyServes() table {
	tests := table{
		"device plugin": {[]change{withLimits(0, "nvidia.com/gpu", "1")}, []string{"main: nvidia.com/gpu: 1"}},
		"replica":       {[]change{withLimits(0, "nvidia.com/gpu.shared", "1")}, []string{"main: nvidia.com/gpu.shared: 1"}},
		"partition":     {[]change{withLimits(0, "nvidia.com/mig-1g.10gb.me", "1")}, []string{"main: nvidia.com/mig-1g.10gb.me: 1"}},
		"no GPU":        {[]change{withLimits(0, "nvidia.com/hostdev", "1")}, []string{"main: nvidia.com/hostdev: 1"}},
	}
	for _, key := range []string{
		"nvidia.com/mig-1c.3g.20gb", "nvidia.com/mig-1g.5gb.shared", "amd.com/cpx_nps4", "hami.io/gpu", "hami.io/gpumem-percentage",
		"4pd.io/vgpu", "volcano.sh/vgpu-number", "volcano.sh/gpu-memory", "org.instaslice/17b63565", "nvidia.com/accelerator-memory",
	} {
		tests[key] = table{"": {[]change{withLimits(-1, key, "1")}, []string{"refused: container prepare: " + key + " "}}}[""]
	}
	for key, remedy := range map[string]string{
		"nvidia.com/container.main.gpus.devices": "has no counterpart: remove it, or write a claim", "nvidia.com/container.main.gpu-compute.portion": "has no counterpart",
		"nvidia.com/container.gpu-memory.request": "has no counterpart", "gpu-fraction.limit": "is a limit in fractions",
		"kai.scheduler/container.main.gpu-memory.portion.limit": "is a limit in fractions",
	} {
		tests[key] = table{"": {[]change{withAnnotations(key, "0.5"), byScheduler("kai-scheduler")}, []string{"refused: annotation " + key + " " + remedy}}}[""]
	}
	tests["several"] = table{"": {[]change{withAnnotations("nvidia.com/container.main.gpus.devices", "GPU-1", "gpu-fraction.limit", "0.5"), withLimits(0, "amd.com/cpx_nps4", "1", "amd.com/dpx_nps2", "1")},
		[]string{"refused: container main: amd.com/cpx_nps4 is a partition"}}}[""]
	return tests
}

// nosPods are pods of a namespace of nos.
func nosPods() table {
	return table{
		"slice":       {[]change{withLimits(0, "nvidia.com/gpu-10gb", "1"), byScheduler("nos-scheduler")}, []string{"main: tranche-0=tranche-memory-10000mi"}},
		"each one":    {[]change{withLimits(-1, "nvidia.com/gpu-1gb", "1"), withLimits(1, "nvidia.com/gpu-999gb", "1")}, []string{"prepare: tranche-init-0=tranche-memory-1000mi", "sidecar: tranche-1=tranche-memory-999000mi"}},
		"MIG":         {[]change{withLimits(0, "nvidia.com/mig-1g.10gb", "1")}, []string{"main: nvidia.com/mig-1g.10gb: 1"}},
		"two":         {[]change{withLimits(0, "nvidia.com/gpu-10gb", "2")}, []string{"refused: container main: nvidia.com/gpu-10gb must be 1: ask for one slice that is large enough"}},
		"two sizes":   {[]change{withLimits(0, "nvidia.com/gpu-10gb", "1", "nvidia.com/gpu-20gb", "1")}, []string{"refused: more than one slice: ask for one that is large enough"}},
		"nothing":     {[]change{withLimits(0, "nvidia.com/gpu-0gb", "1")}, []string{"refused: nvidia.com/gpu-0gb: the number of GB must be from 1 to 999"}},
		"zeros":       {[]change{withLimits(0, "nvidia.com/gpu-010gb", "1")}, []string{"refused: the number of GB must be from 1 to 999"}},
		"a lot":       {[]change{withLimits(0, "nvidia.com/gpu-1000gb", "1")}, []string{"refused: the number of GB must be from 1 to 999"}},
		"quota":       {[]change{withLimits(0, "nos.nebuly.com/gpu-memory", "10")}, []string{"refused: nos.nebuly.com/gpu-memory is for quotas of nos: ask for nvidia.com/gpu-10gb"}},
		"other claim": {[]change{withLimits(0, "nvidia.com/gpu-10gb", "1"), withClaim("tranche-0", "mine")}, []string{"refused: the pod has a claim of its own with the name tranche-0"}},
	}
}
