package state

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/controller/drain"
	"github.com/tranche-dev/tranche/test/golden"
)

func TestEveryEdge(t *testing.T) {
	force := policy(func(p *v1beta1.SwitchPolicy) { p.AfterDeadline = v1beta1.Force })
	reboot := policy(func(p *v1beta1.SwitchPolicy) { p.Reboot = v1beta1.RebootIfRequired })
	const soon, minute, long = 2 * time.Second, time.Minute, time.Hour
	edges := map[string]struct {
		node   *v1beta1.GPUNode
		facts  *Facts
		state  v1beta1.State
		reason string               // of the switch, or of the record if it is over
		result v1beta1.SwitchResult // of the record
		evict  bool
		force  bool
	}{
		"idle, the desired profile is applied":     {node: inState(v1beta1.Idle), facts: after(soon, wants("old")), state: v1beta1.Idle},
		"idle, another desired profile":            {node: inState(v1beta1.Idle), facts: after(soon), state: v1beta1.Planning},
		"idle, the node follows something else":    {node: inState(v1beta1.Idle, follows("other")), facts: after(soon, wants("old")), state: v1beta1.Planning},
		"idle, paused":                             {node: inState(v1beta1.Idle), facts: after(soon, keeps(names.ReasonPaused)), state: v1beta1.Idle},
		"idle, no such profile":                    {node: inState(v1beta1.Idle), facts: after(soon, keeps(names.ReasonProfileNotFound)), state: v1beta1.Idle},
		"idle, another owner":                      {node: inState(v1beta1.Idle, owned), facts: after(soon), state: v1beta1.Idle},
		"idle, no report":                          {node: inState(v1beta1.Idle, func(n *v1beta1.GPUNode) { n.Status.Node = nil }), facts: after(soon), state: v1beta1.Idle},
		"a new GPUNode":                            {node: inState(v1beta1.Idle, func(n *v1beta1.GPUNode) { n.Status.State = "" }), facts: after(soon, wants("old")), state: v1beta1.Idle},
		"a status that somebody has cut":           {node: inState(v1beta1.Draining, func(n *v1beta1.GPUNode) { n.Status.Switch = nil }), facts: after(soon), state: v1beta1.Idle},
		"planning, no answer yet":                  {node: inState(v1beta1.Planning, answers(v1beta1.Applying, v1beta1.TaskDone)), facts: after(soon), state: v1beta1.Planning},
		"planning, the answer is an old one":       {node: inState(v1beta1.Planning, func(n *v1beta1.GPUNode) { n.Status.Node.Task.SwitchID = "0" }), facts: after(soon), state: v1beta1.Planning},
		"planning, no answer":                      {node: inState(v1beta1.Planning, answers("", "")), facts: after(minute), state: v1beta1.Failed, reason: names.ReasonPluginSilent, result: v1beta1.ResultNotApplied},
		"planning, refused":                        {node: inState(v1beta1.Planning, answers(v1beta1.Planning, v1beta1.TaskRefused, "", "no 9g")), facts: after(soon), state: v1beta1.Failed, reason: names.ReasonProfileDoesNotFit, result: v1beta1.ResultNotApplied},
		"planning, failed":                         {node: inState(v1beta1.Planning, answers(v1beta1.Planning, v1beta1.TaskFailed, names.ReasonHardwareFailed, "no NVML")), facts: after(soon), state: v1beta1.Failed, reason: names.ReasonHardwareFailed, result: v1beta1.ResultNotApplied},
		"planned, a GPU of somebody else":          {node: inState(v1beta1.Planning, answers(v1beta1.Planning, v1beta1.TaskPlanned), func(n *v1beta1.GPUNode) { n.Status.Node.Task.Changes = []v1beta1.GPUChange{{GPU: "gpu-x"}} }), facts: after(soon, admitted), state: v1beta1.Failed, reason: names.ReasonInvalidReport, result: v1beta1.ResultNotApplied},
		"planned, nobody is disturbed":             {node: inState(v1beta1.Planning, answers(v1beta1.Planning, v1beta1.TaskPlanned)), facts: after(soon, admitted), state: v1beta1.Applying},
		"planned, nobody is disturbed, no room":    {node: inState(v1beta1.Planning, answers(v1beta1.Planning, v1beta1.TaskPlanned)), facts: after(soon), state: v1beta1.Waiting},
		"planned, there is room":                   {node: inState(v1beta1.Planning), facts: after(soon, admitted), state: v1beta1.Tainted},
		"planned, no room":                         {node: inState(v1beta1.Planning), facts: after(soon), state: v1beta1.Waiting},
		"planned, something else is wanted":        {node: inState(v1beta1.Planning), facts: after(soon, wants("newer"), admitted), state: v1beta1.Planning},
		"planned, what was is wanted again":        {node: inState(v1beta1.Planning), facts: after(soon, wants("old")), state: v1beta1.Idle},
		"planned, paused":                          {node: inState(v1beta1.Planning), facts: after(soon, keeps(names.ReasonPaused), admitted), state: v1beta1.Idle},
		"waiting":                                  {node: inState(v1beta1.Waiting), facts: after(long), state: v1beta1.Waiting},
		"waiting, there is room":                   {node: inState(v1beta1.Waiting), facts: after(long, admitted), state: v1beta1.Tainted},
		"waiting, nothing is in the way any more":  {node: inState(v1beta1.Waiting, answers(v1beta1.Planning, v1beta1.TaskPlanned)), facts: after(long, admitted), state: v1beta1.Applying},
		"waiting, something else is wanted":        {node: inState(v1beta1.Waiting), facts: after(long, wants("newer")), state: v1beta1.Planning},
		"waiting, another owner":                   {node: inState(v1beta1.Waiting, owned), facts: after(long, admitted), state: v1beta1.Idle},
		"tainted, no answer yet":                   {node: inState(v1beta1.Tainted, answers(v1beta1.Planning, v1beta1.TaskPlanned)), facts: after(soon), state: v1beta1.Tainted},
		"tainted, the answer is to another order":  {node: inState(v1beta1.Tainted, func(n *v1beta1.GPUNode) { n.Status.Switch.TaintGeneration = 2 }), facts: after(soon, held), state: v1beta1.Tainted},
		"tainted, not published":                   {node: inState(v1beta1.Tainted, unpublished), facts: after(soon, held), state: v1beta1.Tainted},
		"tainted, published for another switch":    {node: inState(v1beta1.Tainted, func(n *v1beta1.GPUNode) { n.Status.Node.PublishedTaints.SwitchID = "0" }), facts: after(soon, held), state: v1beta1.Tainted},
		"tainted, never published":                 {node: inState(v1beta1.Tainted, unpublished), facts: after(minute), state: v1beta1.Failed, reason: names.ReasonPluginSilent, result: v1beta1.ResultNotApplied},
		"tainted, no answer":                       {node: inState(v1beta1.Tainted, answers("", "")), facts: after(minute), state: v1beta1.Failed, reason: names.ReasonPluginSilent, result: v1beta1.ResultNotApplied},
		"tainted, it does not fit any more":        {node: inState(v1beta1.Tainted, plans(v1beta1.TaskRefused)), facts: after(soon, held), state: v1beta1.Failed, reason: names.ReasonProfileDoesNotFit, result: v1beta1.ResultNotApplied},
		"tainted, a GPU of somebody else":          {node: inState(v1beta1.Tainted, plans(v1beta1.TaskPlanned, changes(gpuA, "gpu-x"))), facts: after(soon, held), state: v1beta1.Failed, reason: names.ReasonInvalidReport, result: v1beta1.ResultNotApplied},
		"tainted, another GPU changes, too":        {node: inState(v1beta1.Tainted, plans(v1beta1.TaskPlanned, changes(gpuA, gpuB))), facts: after(soon, held), state: v1beta1.Tainted},
		"tainted, another GPU shrinks":             {node: inState(v1beta1.Tainted, plans(v1beta1.TaskPlanned, shrinks(gpuB))), facts: after(soon, held), state: v1beta1.Tainted},
		"tainted, nothing changes any more":        {node: inState(v1beta1.Tainted, plans(v1beta1.TaskPlanned, changes())), facts: after(soon, held), state: v1beta1.Applying},
		"tainted, the node not yet":                {node: inState(v1beta1.Tainted), facts: after(soon, without), state: v1beta1.Tainted},
		"tainted, the node cannot be":              {node: inState(v1beta1.Tainted), facts: after(minute, without), state: v1beta1.Failed, reason: names.ReasonTaintFailed, result: v1beta1.ResultNotApplied},
		"tainted, pods are there":                  {node: inState(v1beta1.Tainted), facts: after(soon, held), state: v1beta1.Draining},
		"tainted, a pod cannot leave now":          {node: inState(v1beta1.Tainted), facts: after(soon, held, blocks("u1")), state: v1beta1.Tainted},
		"tainted, a pod cannot leave":              {node: inState(v1beta1.Tainted), facts: after(blockedPatience, held, blocks("u1")), state: v1beta1.Failed, reason: names.ReasonDrainBlocked, result: v1beta1.ResultNotApplied},
		"tainted to reboot, a pod cannot leave":    {node: inState(v1beta1.Tainted, toReboot), facts: after(blockedPatience, held, blocks("u1")), state: v1beta1.RollingBack, reason: names.ReasonDrainBlocked},
		"tainted, it is not known who is there":    {node: inState(v1beta1.Tainted), facts: after(soon, func(f *Facts) { f.Unseen = "no" }), state: v1beta1.Tainted},
		"tainted, nobody is there":                 {node: inState(v1beta1.Tainted), facts: after(soon), state: v1beta1.Applying},
		"tainted, something else is wanted":        {node: inState(v1beta1.Tainted), facts: after(soon, wants("newer")), state: v1beta1.Planning, reason: names.ReasonSuperseded, result: v1beta1.ResultNotApplied},
		"draining":                                 {node: inState(v1beta1.Draining), facts: after(soon, held), state: v1beta1.Draining, evict: true},
		"draining, the plan is lost":               {node: inState(v1beta1.Draining, func(n *v1beta1.GPUNode) { n.Status.Node.Task = nil }), facts: after(soon, held), state: v1beta1.Draining},
		"draining, held on the node only":          {node: inState(v1beta1.Draining, func(n *v1beta1.GPUNode) { n.Status.Node.GPUs[0].HeldDevices = []string{gpuA} }), facts: after(soon), state: v1beta1.Draining},
		"draining, what is held may stay":          {node: inState(v1beta1.Draining, func(n *v1beta1.GPUNode) { n.Status.Node.GPUs[0].HeldDevices = []string{gpuA + "-keep"} }), facts: after(soon), state: v1beta1.Applying},
		"draining, another GPU is held":            {node: inState(v1beta1.Draining, func(n *v1beta1.GPUNode) { n.Status.Node.GPUs[1].HeldDevices = []string{gpuB} }), facts: after(soon), state: v1beta1.Applying},
		"draining, a monitoring pod has not ended": {node: inState(v1beta1.Draining), facts: after(soon, func(f *Facts) { f.Monitoring = []string{"mon/dcgm"} }), state: v1beta1.Draining},
		"draining, a monitoring pod does not end":  {node: inState(v1beta1.Draining), facts: after(minute, func(f *Facts) { f.Monitoring = []string{"mon/dcgm"} }), state: v1beta1.Applying},
		"draining, gone":                           {node: inState(v1beta1.Draining), facts: after(soon), state: v1beta1.Applying},
		"draining, gone when it was too late":      {node: inState(v1beta1.Draining), facts: after(long), state: v1beta1.Applying},
		"draining, gone but not tainted":           {node: inState(v1beta1.Draining), facts: after(soon, without), state: v1beta1.Draining},
		"draining, too late":                       {node: inState(v1beta1.Draining), facts: after(10*time.Minute, held), state: v1beta1.Failed, reason: names.ReasonDrainDeadline, result: v1beta1.ResultNotApplied},
		"draining, not forced yet":                 {node: inState(v1beta1.Draining, force), facts: after(soon, held), state: v1beta1.Draining, evict: true},
		"draining, too late, forced":               {node: inState(v1beta1.Draining, force), facts: after(10*time.Minute, held), state: v1beta1.Draining, evict: true, force: true},
		"draining, too late for force":             {node: inState(v1beta1.Draining, force), facts: after(15*time.Minute, held), state: v1beta1.Failed, reason: names.ReasonDrainDeadline, result: v1beta1.ResultNotApplied},
		"draining, something else is wanted":       {node: inState(v1beta1.Draining), facts: after(soon, held, wants("newer")), state: v1beta1.Planning, reason: names.ReasonSuperseded, result: v1beta1.ResultNotApplied},
		"draining, something else, withheld":       {node: inState(v1beta1.Draining, func(n *v1beta1.GPUNode) { n.Status.Switch.Withhold, n.Status.Switch.NodeTaintRequired = true, true }), facts: after(soon, held, wants("newer")), state: v1beta1.Planning, reason: names.ReasonSuperseded, result: v1beta1.ResultNotApplied},
		"draining, paused":                         {node: inState(v1beta1.Draining), facts: after(soon, held, keeps(names.ReasonPaused)), state: v1beta1.Idle, reason: names.ReasonPaused, result: v1beta1.ResultNotApplied},
		"draining, another owner":                  {node: inState(v1beta1.Draining, owned), facts: after(soon, held), state: v1beta1.Idle, reason: names.ReasonOtherSystem, result: v1beta1.ResultNotApplied},
		"draining, the profile was deleted":        {node: inState(v1beta1.Draining), facts: after(soon, keeps(names.ReasonProfileNotFound), func(f *Facts) { f.Choice.Missing = "new" }), state: v1beta1.Applying},
		"draining, a profile that is not there":    {node: inState(v1beta1.Draining), facts: after(soon, keeps(names.ReasonProfileNotFound), func(f *Facts) { f.Choice.Missing = "nwe" }), state: v1beta1.Idle, reason: names.ReasonProfileNotFound, result: v1beta1.ResultNotApplied},
		"applying":                                 {node: inState(v1beta1.Applying), facts: after(minute), state: v1beta1.Applying},
		"applying, something else is wanted":       {node: inState(v1beta1.Applying), facts: after(minute, wants("newer")), state: v1beta1.Applying},
		"applying, paused":                         {node: inState(v1beta1.Applying), facts: after(minute, keeps(names.ReasonPaused)), state: v1beta1.Applying},
		"applying, another owner":                  {node: inState(v1beta1.Applying, owned), facts: after(minute), state: v1beta1.RollingBack, reason: names.ReasonOtherSystem},
		"applying, done":                           {node: inState(v1beta1.Applying, answers(v1beta1.Applying, v1beta1.TaskDone)), facts: after(long), state: v1beta1.Verifying},
		"applying, done and published":             {node: inState(v1beta1.Applying, follows("new"), answers(v1beta1.Applying, v1beta1.TaskDone)), facts: after(soon), state: v1beta1.Idle, result: v1beta1.ResultSucceeded},
		"applying, done, the slices differ":        {node: inState(v1beta1.Applying, follows("new"), answers(v1beta1.Applying, v1beta1.TaskDone)), facts: after(soon, func(f *Facts) { f.Differs = "slices" }), state: v1beta1.Verifying},
		"applying, failed":                         {node: inState(v1beta1.Applying, answers(v1beta1.Applying, v1beta1.TaskFailed, names.ReasonInUse, "process 12")), facts: after(soon), state: v1beta1.RollingBack, reason: names.ReasonInUse},
		"applying, no answer":                      {node: inState(v1beta1.Applying), facts: after(10 * time.Minute), state: v1beta1.RollingBack, reason: names.ReasonPluginSilent},
		"applying, needs a reboot":                 {node: inState(v1beta1.Applying, answers(v1beta1.Applying, v1beta1.TaskRebootRequired)), facts: after(soon), state: v1beta1.RollingBack, reason: names.ReasonRebootRequired},
		"applying, may reboot":                     {node: inState(v1beta1.Applying, reboot, answers(v1beta1.Applying, v1beta1.TaskRebootRequired)), facts: after(soon), state: v1beta1.Tainted},
		"applying what is soft, may reboot":        {node: inState(v1beta1.Applying, soft, reboot, answers(v1beta1.Applying, v1beta1.TaskRebootRequired)), facts: after(soon), state: v1beta1.RollingBack, reason: names.ReasonRebootRequired},
		"tainted to reboot":                        {node: inState(v1beta1.Tainted, reboot, toReboot), facts: after(soon), state: v1beta1.Rebooting},
		"draining to reboot":                       {node: inState(v1beta1.Draining, reboot, toReboot), facts: after(soon, held), state: v1beta1.Draining, evict: true},
		"draining to reboot, too late":             {node: inState(v1beta1.Draining, reboot, toReboot), facts: after(long, held), state: v1beta1.RollingBack, reason: names.ReasonDrainDeadline},
		"draining to reboot, something else":       {node: inState(v1beta1.Draining, reboot, toReboot), facts: after(soon, held, wants("newer")), state: v1beta1.Draining, evict: true},
		"rebooting":                                {node: inState(v1beta1.Rebooting, answers(v1beta1.Applying, v1beta1.TaskRebootRequired)), facts: after(minute), state: v1beta1.Rebooting},
		"rebooted":                                 {node: inState(v1beta1.Rebooting, answers(v1beta1.Applying, v1beta1.TaskDone)), facts: after(minute), state: v1beta1.Verifying},
		"rebooted and published":                   {node: inState(v1beta1.Rebooting, follows("new"), answers(v1beta1.Applying, v1beta1.TaskDone)), facts: after(minute), state: v1beta1.Idle, result: v1beta1.ResultSucceeded},
		"rebooted, failed":                         {node: inState(v1beta1.Rebooting, answers(v1beta1.Rebooting, v1beta1.TaskFailed)), facts: after(minute), state: v1beta1.RollingBack, reason: names.ReasonHardwareFailed},
		"rebooted for nothing":                     {node: inState(v1beta1.Rebooting, answers(v1beta1.Rebooting, v1beta1.TaskRebootRequired)), facts: after(minute), state: v1beta1.RollingBack, reason: names.ReasonRebootRequired},
		"rebooting for ever":                       {node: inState(v1beta1.Rebooting, answers(v1beta1.Applying, v1beta1.TaskRebootRequired)), facts: after(long), state: v1beta1.RollingBack, reason: names.ReasonRebootFailed},
		"verifying, the node has not said":         {node: inState(v1beta1.Verifying, answers(v1beta1.Applying, v1beta1.TaskDone)), facts: after(soon), state: v1beta1.Verifying},
		"verifying, the slices differ":             {node: inState(v1beta1.Verifying, follows("new"), answers(v1beta1.Applying, v1beta1.TaskDone)), facts: after(soon, func(f *Facts) { f.Differs = "slices" }), state: v1beta1.Verifying},
		"verifying, the slices never agree":        {node: inState(v1beta1.Verifying, follows("new"), answers(v1beta1.Applying, v1beta1.TaskDone)), facts: after(2*time.Minute, func(f *Facts) { f.Differs = "slices" }), state: v1beta1.RollingBack, reason: names.ReasonNotVerified},
		"verifying, failed after all":              {node: inState(v1beta1.Verifying, follows("new"), answers(v1beta1.Applying, v1beta1.TaskFailed)), facts: after(soon), state: v1beta1.RollingBack, reason: names.ReasonHardwareFailed},
		"verified":                                 {node: inState(v1beta1.Verifying, follows("new"), answers(v1beta1.Applying, v1beta1.TaskDone)), facts: after(long), state: v1beta1.Idle, result: v1beta1.ResultSucceeded},
		"rolling back":                             {node: inState(v1beta1.RollingBack), facts: after(minute), state: v1beta1.RollingBack},
		"rolling back, another owner":              {node: inState(v1beta1.RollingBack, owned), facts: after(minute), state: v1beta1.RollingBack},
		"rolled back":                              {node: inState(v1beta1.RollingBack, answers(v1beta1.RollingBack, v1beta1.TaskDone), because), facts: after(minute), state: v1beta1.Failed, reason: names.ReasonInUse, result: v1beta1.ResultRolledBack},
		"rolled back, not verified":                {node: inState(v1beta1.RollingBack, follows("new"), answers(v1beta1.RollingBack, v1beta1.TaskDone)), facts: after(minute), state: v1beta1.RollingBack},
		"rolled back, never verified":              {node: inState(v1beta1.RollingBack, follows("new"), answers(v1beta1.RollingBack, v1beta1.TaskDone)), facts: after(long), state: v1beta1.Failed, reason: names.ReasonRollbackFailed, result: v1beta1.ResultRollbackFailed},
		"not rolled back":                          {node: inState(v1beta1.RollingBack, answers(v1beta1.RollingBack, v1beta1.TaskFailed)), facts: after(minute), state: v1beta1.Failed, reason: names.ReasonRollbackFailed, result: v1beta1.ResultRollbackFailed},
		"rolling back for ever":                    {node: inState(v1beta1.RollingBack), facts: after(long), state: v1beta1.Failed, reason: names.ReasonRollbackFailed, result: v1beta1.ResultRollbackFailed},
		"failed, too early":                        {node: inState(v1beta1.Failed, retryAt(minute), because), facts: after(soon), state: v1beta1.Failed, reason: names.ReasonInUse},
		"failed, again":                            {node: inState(v1beta1.Failed, retryAt(minute)), facts: after(minute), state: v1beta1.Planning},
		"failed, something else is wanted":         {node: inState(v1beta1.Failed, retryAt(long)), facts: after(soon, wants("newer")), state: v1beta1.Planning},
		"failed, what was is wanted again":         {node: inState(v1beta1.Failed, retryAt(long)), facts: after(soon, wants("old")), state: v1beta1.Idle},
		"failed, paused":                           {node: inState(v1beta1.Failed, retryAt(long)), facts: after(long, keeps(names.ReasonPaused)), state: v1beta1.Idle},
		"failed, another owner":                    {node: inState(v1beta1.Failed, retryAt(long), owned), facts: after(long), state: v1beta1.Idle},
		"failed, another policy":                   {node: inState(v1beta1.Failed, retryAt(long), force), facts: after(soon, func(f *Facts) { f.Choice.Policy = policyOf() }), state: v1beta1.Planning},
		"failed, does not fit":                     {node: inState(v1beta1.Failed, doesNotFit), facts: after(24 * long), state: v1beta1.Failed, reason: names.ReasonProfileDoesNotFit},
		"failed, does not fit, other GPUs":         {node: inState(v1beta1.Failed, doesNotFit, basis("other")), facts: after(soon), state: v1beta1.Planning},
		"failed after a reboot, other GPUs":        {node: inState(v1beta1.Failed, doesNotFit, basis("other"), func(n *v1beta1.GPUNode) { n.Status.Switch.RebootRequested = true }), facts: after(24 * long), state: v1beta1.Failed, reason: names.ReasonProfileDoesNotFit},
		"blocked":                                  {node: inState(v1beta1.Failed, blockedBy("u1", "u2"), basis("other")), facts: after(24 * long), state: v1beta1.Failed, reason: names.ReasonDrainBlocked},
		"blocked, one can leave":                   {node: inState(v1beta1.Failed, blockedBy("u1", "u2")), facts: after(long, blocks("u2")), state: v1beta1.Failed, reason: names.ReasonDrainBlocked},
		"blocked, all can leave":                   {node: inState(v1beta1.Failed, blockedBy("u1", "u2")), facts: after(soon, blocks()), state: v1beta1.Planning},
		"blocked, all can leave, too early":        {node: inState(v1beta1.Failed, blockedBy("u1"), retryAt(minute)), facts: after(soon, blocks()), state: v1beta1.Failed, reason: names.ReasonDrainBlocked},
		"blocked, something else is wanted":        {node: inState(v1beta1.Failed, blockedBy("u1")), facts: after(soon, wants("newer")), state: v1beta1.Planning},
	}
	var told []string
	for name, tt := range edges {
		t.Run(name, func(t *testing.T) {
			if tt.node.Status.Switch != nil && name != "failed, another policy" {
				asPolicy(tt.node)(tt.facts)
			}
			m := &Machine{Deadlines: DefaultDeadlines()}
			before := tt.node.DeepCopy()
			step := m.Next(tt.node, tt.facts)
			assert.Equal(t, before, tt.node, "what it is given stays as it is")

			s := &step.Status
			assert.Equal(t, tt.state, s.State)
			if s.State != before.Status.State {
				assert.Equal(t, &metav1.Time{Time: tt.facts.Now}, s.StateChangeTime)
			} else {
				assert.Equal(t, before.Status.StateChangeTime, s.StateChangeTime, "it has been in this state")
			}
			assert.Equal(t, tt.evict, step.Evict, "evict")
			assert.Equal(t, tt.force, step.Force, "force")
			var reason string
			var result v1beta1.SwitchResult
			if s.Switch != nil {
				reason = s.Switch.Reason
			}
			if step.Record != nil {
				reason, result = step.Record.Reason, step.Record.Result
			}
			assert.Equal(t, tt.reason, reason)
			assert.Equal(t, tt.result, result)
			checkShape(t, &step)
			told = append(told, name+"\n"+seen(t, &step))
		})
	}
	if slices.Sort(told); len(told) == len(edges) { // not one of them only
		golden.Equal(t, filepath.Join("testdata", "edges.txt"), strings.Join(told, ""))
	}
}

// seen returns what people and plugins see of a step.
func seen(t *testing.T, step *Step) string {
	t.Helper()
	var all strings.Builder
	clock := func(at time.Time) string { return at.Format("Jan _2 15:04:05.000") }
	if sw := step.Status.Switch.DeepCopy(); sw != nil {
		if sw.ID != "1" {
			sw.ID = "another"
		}
		sw.Policy = v1beta1.SwitchPolicy{}
		data, err := json.Marshal(sw)
		require.NoError(t, err)
		fmt.Fprintf(&all, "  %s\n", data)
	}
	name := func(p *v1beta1.ProfileSnapshot) string {
		return ptr.Deref(p, v1beta1.ProfileSnapshot{ProfileName: "none"}).ProfileName
	}
	fmt.Fprintf(&all, "  desired: %s, applied: %s\n", name(step.Status.Desired), name(step.Status.Applied))
	if step.Record != nil {
		fmt.Fprintf(&all, "  record: %s %s\n", step.Record.Result, step.Record.Message)
	}
	if !step.Wake.IsZero() {
		fmt.Fprintf(&all, "  wakes: %s\n", clock(step.Wake))
	}
	for _, c := range step.Status.Conditions {
		if c.Reason != names.ReasonNone {
			fmt.Fprintf(&all, "  %s=%s %s: %s\n", c.Type, c.Status, c.Reason, c.Message)
		}
	}
	return all.String()
}

// checkShape checks what holds in every state.
func checkShape(t require.TestingT, step *Step) {
	s := &step.Status
	switch s.State {
	case v1beta1.Idle:
		require.Nil(t, s.Switch)
	case v1beta1.Failed:
		require.NotNil(t, s.Switch)
		require.Nil(t, s.Switch.DeadlineTime)
		require.Empty(t, s.Switch.PausedLabels)
	case v1beta1.Waiting:
		require.Nil(t, s.Switch.DeadlineTime)
		require.True(t, step.Wake.IsZero(), "who waits for others is woken")
	default:
		require.NotNil(t, s.Switch.DeadlineTime, s.State)
		require.False(t, step.Wake.IsZero(), "nothing ends by itself")
		require.False(t, step.Wake.After(s.Switch.DeadlineTime.Time))
	}
	for _, kind := range []string{names.ConditionReady, names.ConditionSwitching, names.ConditionRolloutPending, names.ConditionOverridden, names.ConditionConflicted} {
		c := meta.FindStatusCondition(s.Conditions, kind)
		require.NotNil(t, c, kind)
		require.NotEmpty(t, c.Reason, kind)
	}
	ready := meta.FindStatusCondition(s.Conditions, names.ConditionReady)
	require.NotEmpty(t, ready.Message)
	require.LessOrEqual(t, len(s.History), keptRecords)
	if s.State != v1beta1.Idle {
		require.Equal(t, metav1.ConditionFalse, ready.Status)
	}
}

// A profile that is applied and comes from elsewhere now needs no switch.
func TestAnAppliedProfileComesFromElsewhere(t *testing.T) {
	n := inState(v1beta1.Idle)
	f := after(2*time.Second, wants("old"))
	f.Choice.Desired.Source, f.Choice.Desired.PlanName = v1beta1.FromPlan, "p"
	status := (&Machine{Deadlines: DefaultDeadlines()}).Next(n, f).Status
	assert.Equal(t, v1beta1.Idle, status.State)
	assert.Equal(t, "Plan p", string(status.Applied.Source)+" "+status.Applied.PlanName)
}

func TestWhatIsDesired(t *testing.T) {
	for reason, want := range map[string]string{names.ReasonPaused: "old", names.ReasonControlPlaneNotNamed: "old", names.ReasonProfileNotFound: "new"} {
		step := next(inState(v1beta1.Idle), after(time.Second, keeps(reason)))
		assert.Equal(t, want, step.Status.Desired.ProfileName, reason)
	}
}

func TestRetriesBecomeRarer(t *testing.T) {
	var waits []time.Duration
	for attempt := int32(1); attempt <= 8; attempt++ {
		waits = append(waits, retryAfter(attempt))
	}
	m := time.Minute
	assert.Equal(t, []time.Duration{m, 2 * m, 4 * m, 8 * m, 16 * m, 30 * m, 30 * m, 30 * m}, waits)
	assert.Equal(t, 30*m, retryAfter(1<<30))
}

func TestATryThatFollowsAFailureIsCounted(t *testing.T) {
	m := &Machine{Deadlines: DefaultDeadlines()}
	n := inState(v1beta1.Failed, retryAt(time.Minute))
	step := m.Next(n, after(time.Minute))
	assert.Equal(t, int32(2), step.Status.Switch.Attempt)
	assert.NotEqual(t, "1", step.Status.Switch.ID)
	assert.Nil(t, step.Status.Switch.RetryTime)

	step = m.Next(n, after(time.Second, wants("newer")))
	assert.Equal(t, int32(1), step.Status.Switch.Attempt)

	n = inState(v1beta1.Planning, retryAt(time.Minute), answers(v1beta1.Planning, v1beta1.TaskRefused, "", "no 9g"))
	step = m.Next(n, after(time.Second))
	assert.Nil(t, step.Status.Switch.RetryTime, "another try would be refused, too")
	assert.Zero(t, step.Wake)
}

func TestAPolicyThatChangesCountsAtOnce(t *testing.T) {
	m := &Machine{Deadlines: DefaultDeadlines()}
	n := inState(v1beta1.Draining)
	f := after(time.Minute, held)
	f.Choice.Policy.AfterDeadline = v1beta1.Force
	f.Choice.Policy.DrainDeadline = &metav1.Duration{Duration: 30 * time.Second}
	step := m.Next(n, f)
	assert.True(t, step.Force)
	assert.Equal(t, noon.Add(30*time.Second+5*time.Minute), step.Status.Switch.DeadlineTime.Time)
}

func TestAFailureThatRepeatsKeepsOnePlaceInTheHistory(t *testing.T) {
	m := &Machine{Deadlines: DefaultDeadlines()}
	n := inState(v1beta1.Draining)
	for range 3 {
		step := m.Next(n, after(10*time.Minute, held))
		n = inState(v1beta1.Draining)
		n.Status.History = step.Status.History
	}
	require.Len(t, n.Status.History, 1)
	assert.Equal(t, names.ReasonDrainDeadline, n.Status.History[0].Reason)
	assert.Equal(t, 10*time.Minute, n.Status.History[0].Duration.Duration)
}

func TestRebootDrainsAllGPUs(t *testing.T) {
	m := &Machine{Deadlines: DefaultDeadlines()}
	n := inState(v1beta1.Applying, policy(func(p *v1beta1.SwitchPolicy) { p.Reboot = v1beta1.RebootIfRequired }),
		answers(v1beta1.Applying, v1beta1.TaskRebootRequired))
	step := m.Next(n, after(time.Second, asPolicy(n)))
	assert.Equal(t, []string{gpuA, gpuB}, step.Status.Switch.GPUs)
	assert.True(t, step.Status.Switch.RebootRequired)
	assert.Equal(t, int32(2), step.Status.Switch.TaintGeneration)
	n.Status = step.Status
	n.Status.Node.Task = &v1beta1.Task{SwitchID: "1", State: v1beta1.Tainted, TaintGeneration: 2, Phase: v1beta1.TaskPlanned}
	n.Status.Node.PublishedTaints = &v1beta1.PublishedTaints{SwitchID: "1", TaintGeneration: 2}
	n.Status.Node.GPUs[0].HeldDevices = []string{gpuA + "-keep"}
	step = m.Next(n, after(2*time.Second, asPolicy(n)))
	assert.Equal(t, v1beta1.Draining, step.Status.State, "nobody may stay on a node that reboots")
}

// A roll back that failed leaves GPUs that nobody wants so. Whoever disables the node then
// must not be told that the switch succeeded.
func TestANodeThatKeepsWhatItDoesNotHaveIsNotReady(t *testing.T) {
	m := &Machine{Deadlines: DefaultDeadlines()}
	step := m.Next(inState(v1beta1.Idle, follows("neither")), after(time.Second, keeps(names.ReasonPaused)))
	c := meta.FindStatusCondition(step.Status.Conditions, names.ConditionReady)
	assert.Equal(t, metav1.ConditionFalse, c.Status)
	assert.Equal(t, names.ReasonPaused, c.Reason)
	assert.Contains(t, c.Message, "its GPUs differ from profile old, which could not be restored")
	step = m.Next(inState(v1beta1.Idle), after(time.Second, keeps(names.ReasonPaused)))
	assert.True(t, meta.IsStatusConditionTrue(step.Status.Conditions, names.ConditionReady))
}

// Nothing is known of a node whose plugin has not reported, and nothing is asked of a plugin that may
// answer in ways that the controller does not know.
func TestPluginsThatTheControllerDoesNotKnow(t *testing.T) {
	m := &Machine{Deadlines: DefaultDeadlines()}
	for name, test := range map[string]struct {
		change func(*v1beta1.GPUNode)
		status metav1.ConditionStatus
		reason string
		says   string
		state  v1beta1.State
	}{
		"no report": {func(n *v1beta1.GPUNode) { n.Status.Node = nil }, metav1.ConditionUnknown, names.ReasonNoReport, "has not reported", v1beta1.Idle},
		"newer": {func(n *v1beta1.GPUNode) {
			n.Status.Node.PluginVersion, n.Status.Node.ProtocolVersion = "v9", v1beta1.ProtocolVersion+1
		}, metav1.ConditionFalse, names.ReasonProtocolUnknown, "the node's plugin, version v9, follows protocol 2, and this controller knows 1: update the controller", v1beta1.Idle},
		"as this one": {func(n *v1beta1.GPUNode) { n.Status.Node.ProtocolVersion = v1beta1.ProtocolVersion }, metav1.ConditionFalse, names.ReasonSwitching, "", v1beta1.Planning},
	} {
		t.Run(name, func(t *testing.T) {
			n := inState(v1beta1.Idle, test.change)
			step := m.Next(n, after(time.Second, wants("new")))
			c := meta.FindStatusCondition(step.Status.Conditions, names.ConditionReady)
			assert.Equal(t, test.status, c.Status)
			assert.Equal(t, test.reason, c.Reason)
			assert.Contains(t, c.Message, test.says)
			assert.Equal(t, test.state, step.Status.State)
			assert.Equal(t, n.Generation, step.Status.ObservedGeneration)
		})
	}
}

func TestAClockThatIsSetBackMakesNoStateLonger(t *testing.T) {
	m := &Machine{Deadlines: DefaultDeadlines()}
	const back = -24 * time.Hour
	for _, state := range []v1beta1.State{v1beta1.Planning, v1beta1.Tainted, v1beta1.Draining, v1beta1.Applying, v1beta1.Rebooting, v1beta1.Verifying, v1beta1.RollingBack} {
		n := inState(state, answers("", ""))
		step := m.Next(n, after(back, held, asPolicy(n)))
		require.NotNil(t, step.Status.Switch.DeadlineTime, state)
		assert.False(t, step.Status.Switch.DeadlineTime.After(noon.Add(back+15*time.Minute)), "%s lasts until %s", state, step.Status.Switch.DeadlineTime)
		assert.False(t, step.Wake.After(noon.Add(back+15*time.Minute)), "%s is not looked at until %s", state, step.Wake)
	}
	n := inState(v1beta1.Failed, retryAt(time.Minute), because)
	step := m.Next(n, after(back, asPolicy(n)))
	assert.Equal(t, noon.Add(back+time.Minute), step.Status.Switch.RetryTime.Time)
	assert.Equal(t, noon.Add(back+time.Minute), step.Wake)
}

func TestWhatThePluginSaysIsBounded(t *testing.T) {
	m := &Machine{Deadlines: DefaultDeadlines()}
	n := inState(v1beta1.Applying, answers(v1beta1.Applying, v1beta1.TaskFailed, strings.Repeat("Long", 100), strings.Repeat("text ", 10_000)))
	n.Status = m.Next(n, after(time.Second)).Status
	assert.Equal(t, "Other", n.Status.Switch.Reason)
	assert.LessOrEqual(t, len(n.Status.Switch.Message), v1beta1.MaxReportText)
	step := m.Next(n, after(time.Hour))
	require.Equal(t, v1beta1.Failed, step.Status.State)
	assert.LessOrEqual(t, len(step.Status.Switch.Message), v1beta1.MaxReportText)
	assert.LessOrEqual(t, len(step.Status.History[0].Message), v1beta1.MaxRecordMessage)
}

func TestNobodyIsEvictedBeforeTheNodeIsTaintedForAClaimThatOutlivesItsPods(t *testing.T) {
	m := &Machine{Deadlines: DefaultDeadlines()}
	h := webPod()
	h.Outlives = true
	n := inState(v1beta1.Draining)
	f := after(time.Second, func(f *Facts) { f.Holders = []drain.Holder{h} })
	step := m.Next(n, f)
	assert.True(t, step.Status.Switch.NodeTaintRequired)
	assert.False(t, step.Evict)
	assert.Equal(t, f.Now, step.Wake)
	n.Status = step.Status
	assert.True(t, m.Next(n, f).Evict)
}

// The same error of each GPU leaves room for what to do.
func TestRemedyOfManyErrors(t *testing.T) {
	n := &v1beta1.GPUNodeStatus{Switch: &v1beta1.Switch{
		Reason: names.ReasonRebootRequired, Message: strings.Repeat("switch MIG on: the GPU needs a reset; ", 200), To: v1beta1.ProfileSnapshot{ProfileName: "cut"},
	}}
	said := FailedText(n)
	assert.LessOrEqual(t, len(said), v1beta1.MaxConditionMessage)
	assert.Contains(t, said, "The node is unchanged")
	assert.Contains(t, said, "or reboot the node; it is retried when the profile, its policy, the GPUs or the plugin's settings change")
}

func TestTextsAreCut(t *testing.T) {
	assert.Equal(t, "a, b, c, d, e and 2 more", list([]string{"a", "b", "c", "d", "e", "f", "g"}))
	assert.Equal(t, []string{"a", "b"}, compact([]string{"a", "a", "b", "a"}))
	assert.Equal(t, "Other", ReasonWord("not a reason"))
	assert.Equal(t, "Other", ReasonWord(""))
	assert.Equal(t, "InUse", ReasonWord("InUse"))
}

func TestChanging(t *testing.T) {
	assert.Equal(t, []string{"a", "b"}, changing(&v1beta1.Task{Changes: []v1beta1.GPUChange{{GPU: "b"}, {GPU: "a"}, {GPU: "b"}}}), "in order, once")
}

func TestGPUNames(t *testing.T) {
	assert.Equal(t, []string{"a", "b"}, gpuNames(&v1beta1.NodeReport{GPUs: []v1beta1.GPUReport{{Name: "b"}, {Name: "a"}}}))
}

func TestShrinking(t *testing.T) {
	assert.Equal(t, []string{"a", "c"}, shrinking([]string{"c", "a", "b", "c"}, []string{"b"}), "the GPUs that do not change, in order, once")
}
