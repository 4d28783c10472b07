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
		"idle, the desired profile is applied":    {node: inState(v1beta1.Idle), facts: after(soon, wants("old")), state: v1beta1.Idle},
		"idle, another desired profile":           {node: inState(v1beta1.Idle), facts: after(soon), state: v1beta1.Planning},
		"idle, the node has it all the same":      {node: inState(v1beta1.Idle, follows("new")), facts: after(soon), state: v1beta1.Planning},
		"idle, no profile before":                 {node: inState(v1beta1.Idle, first), facts: after(soon, wants("old")), state: v1beta1.Planning},
		"idle, its rollout waits":                 {node: inState(v1beta1.Idle), facts: after(soon, wants("old"), func(f *Facts) { f.Choice.Wanted = "hash-new" }), state: v1beta1.Idle},
		"idle, the node follows something else":   {node: inState(v1beta1.Idle, follows("other")), facts: after(soon, wants("old")), state: v1beta1.Planning},
		"idle, paused":                            {node: inState(v1beta1.Idle), facts: after(soon, keeps(names.ReasonPaused)), state: v1beta1.Idle},
		"idle, no such profile":                   {node: inState(v1beta1.Idle), facts: after(soon, keeps(names.ReasonProfileNotFound)), state: v1beta1.Idle},
		"idle, another owner":                     {node: inState(v1beta1.Idle, owned), facts: after(soon), state: v1beta1.Idle},
		"idle, no report":                         {node: inState(v1beta1.Idle, func(n *v1beta1.GPUNode) { n.Status.Node = nil }), facts: after(soon), state: v1beta1.Idle},
		"a new GPUNode":                           {node: inState(v1beta1.Idle, func(n *v1beta1.GPUNode) { n.Status.State = "" }), facts: after(soon, wants("old")), state: v1beta1.Idle},
		"a status that somebody has cut":          {node: inState(v1beta1.Draining, func(n *v1beta1.GPUNode) { n.Status.Switch = nil }), facts: after(soon), state: v1beta1.Idle},
		"planning, no answer yet":                 {node: inState(v1beta1.Planning, answers(v1beta1.Applying, v1beta1.TaskDone)), facts: after(soon), state: v1beta1.Planning},
		"planning, the answer is an old one":      {node: inState(v1beta1.Planning, func(n *v1beta1.GPUNode) { n.Status.Node.Task.SwitchID = "0" }), facts: after(soon), state: v1beta1.Planning},
		"planning, no answer":                     {node: inState(v1beta1.Planning, answers("", "")), facts: after(minute), state: v1beta1.Failed, reason: names.ReasonPluginSilent, result: v1beta1.ResultNotApplied},
		"planning, refused":                       {node: inState(v1beta1.Planning, answers(v1beta1.Planning, v1beta1.TaskRefused, "", "no 9g")), facts: after(soon), state: v1beta1.Failed, reason: names.ReasonProfileDoesNotFit, result: v1beta1.ResultNotApplied},
		"planning, failed":                        {node: inState(v1beta1.Planning, answers(v1beta1.Planning, v1beta1.TaskFailed, names.ReasonHardwareFailed, "no NVML")), facts: after(soon), state: v1beta1.Failed, reason: names.ReasonHardwareFailed, result: v1beta1.ResultNotApplied},
		"planned, a GPU of somebody else":         {node: inState(v1beta1.Planning, answers(v1beta1.Planning, v1beta1.TaskPlanned), func(n *v1beta1.GPUNode) { n.Status.Node.Task.Changes = []v1beta1.GPUChange{{GPU: "gpu-x"}} }), facts: after(soon, admitted), state: v1beta1.Failed, reason: names.ReasonInvalidReport, result: v1beta1.ResultNotApplied},
		"planned, nobody is disturbed":            {node: inState(v1beta1.Planning, answers(v1beta1.Planning, v1beta1.TaskPlanned)), facts: after(soon, admitted), state: v1beta1.Applying},
		"planned, nobody is disturbed, no room":   {node: inState(v1beta1.Planning, answers(v1beta1.Planning, v1beta1.TaskPlanned)), facts: after(soon), state: v1beta1.Waiting},
		"planned, there is room":                  {node: inState(v1beta1.Planning), facts: after(soon, admitted), state: v1beta1.Tainted},
		"planned, no room":                        {node: inState(v1beta1.Planning), facts: after(soon), state: v1beta1.Waiting},
		"planned, something else is wanted":       {node: inState(v1beta1.Planning), facts: after(soon, wants("newer"), admitted), state: v1beta1.Planning},
		"planned, what was is wanted again":       {node: inState(v1beta1.Planning), facts: after(soon, wants("old")), state: v1beta1.Idle},
		"planned, paused":                         {node: inState(v1beta1.Planning), facts: after(soon, keeps(names.ReasonPaused), admitted), state: v1beta1.Idle},
		"waiting":                                 {node: inState(v1beta1.Waiting), facts: after(long), state: v1beta1.Waiting},
		"waiting, there is room":                  {node: inState(v1beta1.Waiting), facts: after(long, admitted), state: v1beta1.Tainted},
		"waiting, nothing is in the way any more": {node: inState(v1beta1.Waiting, answers(v1beta1.Planning, v1beta1.TaskPlanned)), facts: after(long, admitted), state: v1beta1.Applying},
		"waiting, something else is wanted":       {node: inState(v1beta1.Waiting), facts: after(long, wants("newer")), state: v1beta1.Planning},
		"waiting, another owner":                  {node: inState(v1beta1.Waiting, owned), facts: after(long, admitted), state: v1beta1.Idle},
		"waiting, the plan is lost":               {node: inState(v1beta1.Waiting, answers("", "")), facts: after(long), state: v1beta1.Planning},
		"waiting, it does not fit any more":       {node: inState(v1beta1.Waiting, answers(v1beta1.Planning, v1beta1.TaskRefused)), facts: after(long, admitted), state: v1beta1.Planning},
		"tainted, no answer yet":                  {node: inState(v1beta1.Tainted, answers(v1beta1.Planning, v1beta1.TaskPlanned)), facts: after(soon), state: v1beta1.Tainted},
		"tainted, the answer is to another order": {node: inState(v1beta1.Tainted, func(n *v1beta1.GPUNode) { n.Status.Switch.TaintGeneration = 2 }), facts: after(soon, held), state: v1beta1.Tainted},
		"tainted, not published":                  {node: inState(v1beta1.Tainted, unpublished), facts: after(soon, held), state: v1beta1.Tainted},
		"tainted, published for another switch":   {node: inState(v1beta1.Tainted, func(n *v1beta1.GPUNode) { n.Status.Node.PublishedTaints.SwitchID = "0" }), facts: after(soon, held), state: v1beta1.Tainted},
		"tainted, never published":                {node: inState(v1beta1.Tainted, unpublished), facts: after(minute), state: v1beta1.Failed, reason: names.ReasonPluginSilent, result: v1beta1.ResultNotApplied},
		"tainted, no answer":                      {node: inState(v1beta1.Tainted, answers("", "")), facts: after(minute), state: v1beta1.Failed, reason: names.ReasonPluginSilent, result: v1beta1.ResultNotApplied},
		"tainted, it does not fit any more":       {node: inState(v1beta1.Tainted, plans(v1beta1.TaskRefused)), facts: after(soon, held), state: v1beta1.Failed, reason: names.ReasonProfileDoesNotFit, result: v1beta1.ResultNotApplied},
		"tainted, a GPU of somebody else":         {node: inState(v1beta1.Tainted, plans(v1beta1.TaskPlanned, changes(gpuA, "gpu-x"))), facts: after(soon, held), state: v1beta1.Failed, reason: names.ReasonInvalidReport, result: v1beta1.ResultNotApplied},
		"tainted, another GPU changes, too":       {node: inState(v1beta1.Tainted, plans(v1beta1.TaskPlanned, changes(gpuA, gpuB))), facts: after(soon, held), state: v1beta1.Tainted},
		"tainted, another GPU shrinks":            {node: inState(v1beta1.Tainted, plans(v1beta1.TaskPlanned, shrinks(gpuB))), facts: after(soon, held), state: v1beta1.Tainted},
		"tainted, nothing changes any more":       {node: inState(v1beta1.Tainted, plans(v1beta1.TaskPlanned, changes())), facts: after(soon, held), state: v1beta1.Applying},
		"tainted, the node not yet":               {node: inState(v1beta1.Tainted), facts: after(soon, without), state: v1beta1.Tainted},
		"tainted, the node cannot be":             {node: inState(v1beta1.Tainted), facts: after(minute, without), state: v1beta1.Failed, reason: names.ReasonTaintFailed, result: v1beta1.ResultNotApplied},
		"tainted, pods are there":                 {node: inState(v1beta1.Tainted), facts: after(soon, held), state: v1beta1.Draining},
		"tainted, a pod cannot leave now":         {node: inState(v1beta1.Tainted), facts: after(soon, held, blocks("u1")), state: v1beta1.Tainted},
		"tainted, one came that cannot leave":     {node: inState(v1beta1.Tainted), facts: after(soon, held, blocks("u1"), evicted), state: v1beta1.Tainted},
		"tainted, a job cannot leave": {node: inState(v1beta1.Tainted), facts: after(blockedPatience, func(f *Facts) {
			f.Blockers = []v1beta1.Blocker{{Kind: v1beta1.BlockerDevice, Name: gpuA, Message: "reserved for a job"}}
		}), state: v1beta1.Failed, reason: names.ReasonDrainBlocked, result: v1beta1.ResultNotApplied},
		"tainted, a claim outlives its pod":        {node: inState(v1beta1.Tainted), facts: after(soon, held, func(f *Facts) { f.Holders[0].Outlives = true }), state: v1beta1.Draining},
		"tainted to reboot, never published":       {node: inState(v1beta1.Tainted, toReboot, unpublished), facts: after(minute), state: v1beta1.RollingBack, reason: names.ReasonPluginSilent},
		"tainted, a pod cannot leave":              {node: inState(v1beta1.Tainted), facts: after(blockedPatience, held, blocks("u1")), state: v1beta1.Failed, reason: names.ReasonDrainBlocked, result: v1beta1.ResultNotApplied},
		"tainted to reboot, a pod cannot leave":    {node: inState(v1beta1.Tainted, toReboot), facts: after(blockedPatience, held, blocks("u1")), state: v1beta1.RollingBack, reason: names.ReasonDrainBlocked},
		"tainted, it is not known who is there":    {node: inState(v1beta1.Tainted), facts: after(soon, func(f *Facts) { f.Unseen = "no" }), state: v1beta1.Tainted},
		"tainted, nobody is there":                 {node: inState(v1beta1.Tainted), facts: after(soon), state: v1beta1.Applying},
		"tainted, something else is wanted":        {node: inState(v1beta1.Tainted), facts: after(soon, wants("newer")), state: v1beta1.Planning, reason: names.ReasonSuperseded, result: v1beta1.ResultNotApplied},
		"draining":                                 {node: inState(v1beta1.Draining), facts: after(soon, held), state: v1beta1.Draining, evict: true},
		"draining, the plan is lost":               {node: inState(v1beta1.Draining, func(n *v1beta1.GPUNode) { n.Status.Node.Task = nil }), facts: after(soon, held), state: v1beta1.Draining},
		"draining, it is not known who is there":   {node: inState(v1beta1.Draining), facts: after(soon, func(f *Facts) { f.Unseen = "no" }), state: v1beta1.Draining},
		"draining, another plan gives it":          {node: inState(v1beta1.Draining), facts: after(soon, held, func(f *Facts) { f.Choice.Desired.Source, f.Choice.Desired.PlanName = v1beta1.FromPlan, "p" }), state: v1beta1.Draining, evict: true},
		"draining, held on the node only":          {node: inState(v1beta1.Draining, func(n *v1beta1.GPUNode) { n.Status.Node.GPUs[0].HeldDevices = []string{gpuA} }), facts: after(soon), state: v1beta1.Draining},
		"draining, what is held may stay":          {node: inState(v1beta1.Draining, func(n *v1beta1.GPUNode) { n.Status.Node.GPUs[0].HeldDevices = []string{gpuA + "-keep"} }), facts: after(soon), state: v1beta1.Applying},
		"draining, another GPU is held":            {node: inState(v1beta1.Draining, func(n *v1beta1.GPUNode) { n.Status.Node.GPUs[1].HeldDevices = []string{gpuB} }), facts: after(soon), state: v1beta1.Applying},
		"draining, a monitoring pod has not ended": {node: inState(v1beta1.Draining), facts: after(soon, func(f *Facts) { f.Monitoring = []string{"mon/dcgm"} }), state: v1beta1.Draining},
		"draining, a monitoring pod does not end":  {node: inState(v1beta1.Draining), facts: after(minute, func(f *Facts) { f.Monitoring = []string{"mon/dcgm"} }), state: v1beta1.Applying},
		"draining, gone":                           {node: inState(v1beta1.Draining), facts: after(soon), state: v1beta1.Applying},
		"draining, gone when it was too late":      {node: inState(v1beta1.Draining), facts: after(long), state: v1beta1.Applying},
		"draining, gone but not tainted":           {node: inState(v1beta1.Draining), facts: after(soon, without), state: v1beta1.Draining},
		"draining, too late":                       {node: inState(v1beta1.Draining), facts: after(10*time.Minute, held), state: v1beta1.Failed, reason: names.ReasonDrainDeadline, result: v1beta1.ResultNotApplied},
		"draining, one was evicted in vain":        {node: inState(v1beta1.Draining), facts: after(10*time.Minute, held, evicted), state: v1beta1.Failed, reason: names.ReasonDrainDeadline, result: v1beta1.ResultNotApplied},
		"draining, one left its device held":       {node: inState(v1beta1.Draining, stillHeld), facts: after(10*time.Minute, held, evicted, func(f *Facts) { f.Holders[0].Pod.Over = true }), state: v1beta1.Failed, reason: names.ReasonDrainDeadline, result: v1beta1.ResultNotApplied},
		"draining, a pod and a job hold":           {node: inState(v1beta1.Draining, stillHeld), facts: after(10*time.Minute, held, func(f *Facts) { f.Holders = append(f.Holders, f.Holders[0], drain.Holder{Other: "jobs team/x"}) }), state: v1beta1.Failed, reason: names.ReasonDrainDeadline, result: v1beta1.ResultNotApplied},
		"draining, not forced yet":                 {node: inState(v1beta1.Draining, force), facts: after(soon, held), state: v1beta1.Draining, evict: true},
		"draining, too late, forced":               {node: inState(v1beta1.Draining, force), facts: after(10*time.Minute, held), state: v1beta1.Draining, evict: true, force: true},
		"draining, forced in a second":             {node: inState(v1beta1.Draining, force), facts: after(10*time.Minute-time.Second, held), state: v1beta1.Draining, evict: true},
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
		"verifying, a device is gone":              {node: inState(v1beta1.Verifying, follows("new"), answers(v1beta1.Applying, v1beta1.TaskDone)), facts: after(soon, held), state: v1beta1.Verifying, evict: true},
		"verifying, a pod does not leave":          {node: inState(v1beta1.Verifying, follows("new"), answers(v1beta1.Applying, v1beta1.TaskDone)), facts: after(long, held), state: v1beta1.Idle, result: v1beta1.ResultSucceeded},
		"rolling back":                             {node: inState(v1beta1.RollingBack), facts: after(minute), state: v1beta1.RollingBack},
		"rolling back, another owner":              {node: inState(v1beta1.RollingBack, owned), facts: after(minute), state: v1beta1.RollingBack},
		"rolled back":                              {node: inState(v1beta1.RollingBack, answers(v1beta1.RollingBack, v1beta1.TaskDone), because), facts: after(minute), state: v1beta1.Failed, reason: names.ReasonInUse, result: v1beta1.ResultRolledBack},
		"rolled back, not verified":                {node: inState(v1beta1.RollingBack, follows("new"), answers(v1beta1.RollingBack, v1beta1.TaskDone)), facts: after(minute), state: v1beta1.RollingBack},
		"rolled back, never verified":              {node: inState(v1beta1.RollingBack, follows("new"), answers(v1beta1.RollingBack, v1beta1.TaskDone)), facts: after(long), state: v1beta1.Failed, reason: names.ReasonRollbackFailed, result: v1beta1.ResultRollbackFailed},
		"not rolled back":                          {node: inState(v1beta1.RollingBack, answers(v1beta1.RollingBack, v1beta1.TaskFailed)), facts: after(minute), state: v1beta1.Failed, reason: names.ReasonRollbackFailed, result: v1beta1.ResultRollbackFailed},
		"not repaired":                             {node: inState(v1beta1.RollingBack, answers(v1beta1.RollingBack, v1beta1.TaskFailed), func(n *v1beta1.GPUNode) { n.Status.Switch.From = n.Status.Switch.To }), facts: after(minute), state: v1beta1.Failed, reason: names.ReasonRollbackFailed, result: v1beta1.ResultRollbackFailed},
		"rolling back for ever":                    {node: inState(v1beta1.RollingBack), facts: after(long), state: v1beta1.Failed, reason: names.ReasonRollbackFailed, result: v1beta1.ResultRollbackFailed},
		"failed, too early":                        {node: inState(v1beta1.Failed, retryAt(minute), because), facts: after(soon), state: v1beta1.Failed, reason: names.ReasonInUse},
		"failed, again":                            {node: inState(v1beta1.Failed, retryAt(minute)), facts: after(minute), state: v1beta1.Planning},
		"failed, something else is wanted":         {node: inState(v1beta1.Failed, retryAt(long)), facts: after(soon, wants("newer")), state: v1beta1.Planning},
		"failed, what was is wanted again":         {node: inState(v1beta1.Failed, retryAt(long)), facts: after(soon, wants("old")), state: v1beta1.Idle},
		"failed, what was is not what there is":    {node: inState(v1beta1.Failed, retryAt(long), follows("neither")), facts: after(soon, wants("old")), state: v1beta1.Planning},
		"failed, the node has it all the same":     {node: inState(v1beta1.Failed, retryAt(long), follows("new")), facts: after(soon), state: v1beta1.Failed},
		"failed, no profile before":                {node: inState(v1beta1.Failed, retryAt(long), first), facts: after(soon), state: v1beta1.Failed},
		"failed, paused":                           {node: inState(v1beta1.Failed, retryAt(long)), facts: after(long, keeps(names.ReasonPaused)), state: v1beta1.Idle},
		"failed, another owner":                    {node: inState(v1beta1.Failed, retryAt(long), owned), facts: after(long), state: v1beta1.Idle},
		"failed, another policy":                   {node: inState(v1beta1.Failed, retryAt(long), force), facts: after(soon, func(f *Facts) { f.Choice.Policy = policyOf() }), state: v1beta1.Planning},
		"failed, does not fit":                     {node: inState(v1beta1.Failed, doesNotFit), facts: after(24 * long), state: v1beta1.Failed, reason: names.ReasonProfileDoesNotFit},
		"failed, does not fit, other GPUs":         {node: inState(v1beta1.Failed, doesNotFit, basis("other")), facts: after(soon), state: v1beta1.Planning},
		"failed after a reboot, other GPUs":        {node: inState(v1beta1.Failed, doesNotFit, basis("other"), func(n *v1beta1.GPUNode) { n.Status.Switch.RebootRequested = true }), facts: after(24 * long), state: v1beta1.Failed, reason: names.ReasonProfileDoesNotFit},
		"blocked":                                  {node: inState(v1beta1.Failed, blockedBy("u1"), basis("other")), facts: after(24 * long), state: v1beta1.Failed, reason: names.ReasonDrainBlocked},
		"blocked, one can leave":                   {node: inState(v1beta1.Failed, blockedBy("u1", "u2")), facts: after(long, blocks("u2"), func(f *Facts) { f.LookAgain = noon.Add(2 * long) }), state: v1beta1.Failed, reason: names.ReasonDrainBlocked},
		"blocked, not looked at yet":               {node: inState(v1beta1.Failed, blockedBy("u1")), facts: after(soon, func(f *Facts) { f.LookAgain = noon.Add(long) }), state: v1beta1.Failed, reason: names.ReasonDrainBlocked},
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
	if requested := step.Status.RequestedHash; requested != "" {
		fmt.Fprintf(&all, "  requested: %s\n", requested)
	}
	if step.Record != nil && step.Record.Repair {
		all.WriteString("  of a repair:\n")
	}
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
