package names

// The reasons of the events that the plugin writes. Their type is in parentheses, and
// the object where it is not the Node.
const (
	// EventGPUUnhealthy (Warning): a GPU is out of service: cause, action, holders.
	EventGPUUnhealthy = "GPUUnhealthy"
	// EventGPUHealthy (Normal): a GPU can be allocated again.
	EventGPUHealthy = "GPUHealthy"
	// EventGPUError (Warning): an error that needs no action.
	EventGPUError = "GPUError"
	// EventGPUBusy (Warning): a process without a claim blocks a mode change.
	EventGPUBusy = "GPUBusy"
	// EventGPUNoLongerBusy (Normal): the process of GPUBusy ended.
	EventGPUNoLongerBusy = "GPUNoLongerBusy"
	// EventPartitionMissing (Warning): an AMD partition that the mode should have is missing.
	EventPartitionMissing = "PartitionMissing"
	// EventPartitionFound (Normal): a missing partition returned.
	EventPartitionFound = "PartitionFound"
	// EventDevicesFail (Warning): devices cannot be prepared. The node tries again.
	EventDevicesFail = "DevicesFail"
	// EventDevicesWork (Normal): devices of DevicesFail can be prepared again.
	EventDevicesWork = "DevicesWork"
	// EventHeldDeviceGone (Warning): somebody else removed a device that a claim holds, or
	// changed the GPU's mode.
	EventHeldDeviceGone = "HeldDeviceGone"
	// EventHeldDeviceReleased (Normal): the claim that held a removed partition was released.
	EventHeldDeviceReleased = "HeldDeviceReleased"
	// EventForeignPartition (Warning): a partition that Tranche did not create, with the
	// command that removes it.
	EventForeignPartition = "ForeignPartition"
	// EventForeignPartitionRemoved (Normal): a foreign partition was idle and was removed,
	// because `foreignPartitions=RemoveIdle`.
	EventForeignPartitionRemoved = "ForeignPartitionRemoved"
	// EventOtherSystem (Warning): another system serves the GPUs, so Tranche does not.
	EventOtherSystem = "OtherSystem"
	// EventOtherSystemGone (Normal): the other system left.
	EventOtherSystemGone = "OtherSystemGone"
	// EventDriverFound (Normal): a driver was found after the plugin's start or an upgrade.
	EventDriverFound = "DriverFound"
	// EventDriverReleased (Normal): a driver was released for an upgrade, and what requested
	// it.
	EventDriverReleased = "DriverReleased"
	// EventLabelIgnored (Warning, also on the Namespace): `tranche.dev/driver-upgrade`, or
	// `tranche.dev/translate` or `tranche.dev/request-gpu-resources` where the chart enables them,
	// has an unknown value.
	EventLabelIgnored = "LabelIgnored"
	// EventHardwareUnusable (Warning): the driver cannot be used. Pods can terminate, but new
	// ones do not start.
	EventHardwareUnusable = "HardwareUnusable"
	// EventPartitionsNotPublished (Warning): a feature gate of the API server is off: whole
	// GPUs only.
	EventPartitionsNotPublished = "PartitionsNotPublished"
	// EventTaintsNotPublished (Warning): a feature gate of the API server is off: devices
	// that would be tainted are not published.
	EventTaintsNotPublished = "TaintsNotPublished"
	// EventSharesNotPublished (Warning): no shares are published, or none of partitions.
	EventSharesNotPublished = "SharesNotPublished"
	// EventSharesNotLimited (Warning): no MPS daemon works, so memory of shares is not
	// limited.
	EventSharesNotLimited = "SharesNotLimited"
	// EventSharesLimited (Normal): an MPS daemon works again.
	EventSharesLimited = "SharesLimited"
	// EventShareLimitRestored (Warning): the memory limit of a pod's share was missing or changed,
	// and was set again.
	EventShareLimitRestored = "ShareLimitRestored"
	// EventShareLimitFailed (Warning): the memory limit of a pod's share is not in force.
	EventShareLimitFailed = "ShareLimitFailed"
	// EventShareLimitReduced (Warning, on the pod or its PodGroup's claim): a share has another memory
	// limit than its claim requests.
	EventShareLimitReduced = "ShareLimitReduced"
	// EventMPSDaemonDied (Warning, also on pods): a daemon that serves shares died and is
	// started again.
	EventMPSDaemonDied = "MPSDaemonDied"
	// EventMPSDaemonRestarted (Normal): a daemon that died works again.
	EventMPSDaemonRestarted = "MPSDaemonRestarted"
	// EventStrayDaemonStopped (Warning): a daemon without a claim was stopped.
	EventStrayDaemonStopped = "StrayDaemonStopped"
	// EventDaemonsUnreadable (Warning): MPS daemons cannot be listed.
	EventDaemonsUnreadable = "DaemonsUnreadable"
	// EventSettingsApplied (Normal): new sharing settings apply to these GPUs.
	EventSettingsApplied = "SettingsApplied"
	// EventSettingsPending (Normal): new sharing settings wait until shares are released.
	EventSettingsPending = "SettingsPending"
	// EventProfileNotRestored (Warning): GPUs do not match the profile after a reboot or
	// driver reload; retried.
	EventProfileNotRestored = "ProfileNotRestored"
	// EventProfileDoesNotFit (Warning): the node's GPUs no longer fit the profile, because
	// one was removed.
	EventProfileDoesNotFit = "ProfileDoesNotFit"
	// EventProfileUnknown (Warning): the stored profile cannot be read. It is requested from the
	// controller again, or, if a newer version wrote it, stays.
	EventProfileUnknown = "ProfileUnknown"
	// EventGPURemoved (Normal): a GPU from before the reboot is gone, so profiles no longer
	// count it.
	EventGPURemoved = "GPURemoved"
	// EventRebooting (Warning): the plugin reboots the node for the profile.
	EventRebooting = "Rebooting"
	// EventGPUNotPublished (Warning): a device or GPU would make the pool invalid and is left
	// out.
	EventGPUNotPublished = "GPUNotPublished"
	// EventPublishFailed (Warning): the slices could not be written.
	EventPublishFailed = "PublishFailed"
	// EventSeveralMIGPartitions (Warning, on the pod): one container has several MIG
	// partitions, of which a CUDA process uses one.
	EventSeveralMIGPartitions = "SeveralMIGPartitions"
	// EventReleaseFailed (Warning, on the pod): a device cannot be released yet.
	EventReleaseFailed = "ReleaseFailed"
	// EventReleaseNotFinished (Warning, also on the pod): a claim was released, but its
	// partition cannot be removed yet.
	EventReleaseNotFinished = "ReleaseNotFinished"
	// EventClaimConflict (Warning): a claim was allocated a device that another claim still
	// holds.
	EventClaimConflict = "ClaimConflict"
	// EventLeftoverReleased (Warning): a device that a deleted claim held was released.
	EventLeftoverReleased = "LeftoverReleased"
	// EventLeftoverInUse (Warning): containers of a deleted claim still run.
	EventLeftoverInUse = "LeftoverInUse"
	// EventPreparedAgain (Warning): the CDI file of a claim was missing or outdated and was
	// written again.
	EventPreparedAgain = "PreparedAgain"
	// EventLedgerRecordNewer (Warning): a newer version wrote a record that this version
	// cannot use.
	EventLedgerRecordNewer = "LedgerRecordNewer"
	// EventOrphanFileRemoved (Warning): a CDI file without a claim was removed.
	EventOrphanFileRemoved = "OrphanFileRemoved"
	// EventRecordRebuilt (Warning): a lost record was rebuilt from the CDI file.
	EventRecordRebuilt = "RecordRebuilt"
	// EventLedgerFileBroken (Warning): an unreadable record was moved aside.
	EventLedgerFileBroken = "LedgerFileBroken"
	// EventLedgerUnreadable (Warning): records of claims cannot be read.
	EventLedgerUnreadable = "LedgerUnreadable"
	// EventCDIFilesUnreadable (Warning): CDI files cannot be read.
	EventCDIFilesUnreadable = "CDIFilesUnreadable"
	// EventUninstalling (Normal): Tranche is being uninstalled, and its GPUs are no longer published.
	EventUninstalling = "Uninstalling"
)

// The reasons of the events that the controller writes on the GPUNode, beside those
// of switches that fail, which have the switch's reason.
const (
	// EventSwitchStarted (Normal, on the GPUNode): GPUs are tainted for another profile.
	EventSwitchStarted = "SwitchStarted"
	// EventSwitchSucceeded (Normal, on the GPUNode): the switch is done, and how long it took.
	EventSwitchSucceeded = "SwitchSucceeded"
	// EventPlanRevision (Normal, on the PartitionPlan): the profile is new or was changed: the
	// plan begins to roll it out.
	EventPlanRevision = "PlanRevision"
	// EventPlanStep (Normal, on the PartitionPlan): the nodes of a step have the target.
	EventPlanStep = "PlanStep"
	// EventPlanStopped (Warning, on the PartitionPlan): too many nodes failed.
	EventPlanStopped = "PlanStopped"
	// EventPlanUndo (Warning, on the PartitionPlan): nodes go back from the newest revision.
	EventPlanUndo = "PlanUndo"
	// EventPlanComplete (Normal, on the PartitionPlan): the nodes that can be switched have the target.
	EventPlanComplete = "PlanComplete"
	// EventDefragmentationStarted (Normal, on the GPUNode): pods are moved to make room for
	// a waiting pod.
	EventDefragmentationStarted = "DefragmentationStarted"
	// EventDefragmentationSucceeded (Normal, on the GPUNode): the waiting pod has its devices.
	EventDefragmentationSucceeded = "DefragmentationSucceeded"
	// EventDefragmentationAborted (Warning, on the GPUNode): the waiting pod did not get its
	// devices.
	EventDefragmentationAborted = "DefragmentationAborted"
	// EventEvictedForDefragmentation (Normal, on the pod): the pod was evicted to make room for
	// another one.
	EventEvictedForDefragmentation = "EvictedForDefragmentation"
	// EventMakingRoom (Normal, on the pod): other pods are evicted for the pod.
	EventMakingRoom = "MakingRoom"
	// EventProfileReplaced (Warning): a label of the node replaced the value of
	// `spec.profileName`.
	EventProfileReplaced = "ProfileReplaced"
	// EventConfigMapInvalid (Warning, on the ConfigMap): configurations in it cannot be used.
	// Nodes that name them keep what they have.
	EventConfigMapInvalid = "ConfigMapInvalid"
	// EventConfigMapValid (Normal, on the ConfigMap): it was corrected.
	EventConfigMapValid = "ConfigMapValid"
	// EventConfigMapPartsIgnored (Normal, on the ConfigMap): parts of it have no counterpart.
	EventConfigMapPartsIgnored = "ConfigMapPartsIgnored"
	// EventEvictedForSwitch (Normal, on the pod): the pod was evicted for a switch, or deleted
	// after the deadline.
	EventEvictedForSwitch = "EvictedForSwitch"
	// EventAnnotationIgnored (Warning, on the pod): KAI's annotation gives the pod no GPU,
	// because its namespace has no label `tranche.dev/translate`, or had none when the pod
	// was created.
	EventAnnotationIgnored = "AnnotationIgnored"
	// EventDevicesHeld (Warning, on the pod): claims hold all its devices.
	EventDevicesHeld = "DevicesHeld"
	// EventDevicesNotTogether (Warning, on the pod): not all requests fit at once.
	EventDevicesNotTogether = "DevicesNotTogether"
	// EventDevicesTainted (Warning, on the pod): all its devices are tainted.
	EventDevicesTainted = "DevicesTainted"
	// EventNodesSwitching (Warning, on the pod): its nodes are being switched.
	EventNodesSwitching = "NodesSwitching"
	// EventNodesExcluded (Warning, on the pod): the pod may not go to the nodes with
	// devices.
	EventNodesExcluded = "NodesExcluded"
	// EventGPUsUnusable (Warning, on the pod): nodes have GPUs that cannot be used now.
	EventGPUsUnusable = "GPUsUnusable"
	// EventTooMuchForANode (Warning, on the pod): it fits on no node, even if all devices
	// were free.
	EventTooMuchForANode = "TooMuchForANode"
	// EventNoSuchDevice (Warning, on the pod): no node has such a device.
	EventNoSuchDevice = "NoSuchDevice"
	// EventRequestInvalid (Warning, on the pod): its claim names no DeviceClass that exists,
	// or is being deleted.
	EventRequestInvalid = "RequestInvalid"
	// EventSelectorFails (Warning, on the pod): a selector of its claim fails.
	EventSelectorFails = "SelectorFails"
	// EventClaimNotCreated (Warning, on the pod): its claim does not exist.
	EventClaimNotCreated = "ClaimNotCreated"
	// EventDevicesFree (Normal, on the pod): the reason of the previous event no longer applies.
	EventDevicesFree = "DevicesFree"
	// EventTooManyAmounts (Warning, on the pod): pods of the namespace request too many
	// different amounts, so this one waits.
	EventTooManyAmounts = "TooManyAmounts"
)
