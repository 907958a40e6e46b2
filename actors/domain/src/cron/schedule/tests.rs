use jiff::tz::TimeZone;
use proptest::prelude::*;

use super::*;
use crate::cron::time;

fn zones() -> Zones {
    Zones { local: TimeZone::UTC, named: |name| TimeZone::get(name).ok() }
}

fn ms(text: &str) -> u64 {
    u64::try_from(text.parse::<Timestamp>().unwrap().as_millisecond()).unwrap()
}

fn timing(expr: &str, tz: &str) -> Timing {
    Schedule::cron(expr, Some(tz)).timing(&zones()).unwrap()
}

/// The moments after `from`, as `day hour:minute offset` of the zone.
#[track_caller]
fn check(tz: &str, expr: &str, from: &str, expect: &[&str]) {
    let (timing, zone) = (timing(expr, tz), TimeZone::get(tz).unwrap());
    let mut at = ms(from);
    let mut found = Vec::new();
    for _ in expect {
        at = timing.next_after(at).unwrap();
        let zoned = Timestamp::from_millisecond(i64::try_from(at).unwrap()).unwrap().to_zoned(zone.clone());
        found.push(zoned.strftime("%d %H:%M %:z").to_string());
    }
    assert_eq!(found, expect, "{expr} in {tz}");
}

#[test]
fn a_clock_put_forward() {
    let (berlin, new_york, lord_howe) = ("Europe/Berlin", "America/New_York", "Australia/Lord_Howe");
    let spring = "2026-03-28T23:00:00Z";
    check(berlin, "30 2 * * *", spring, &["29 03:00 +02:00", "30 02:30 +02:00"]);
    check(berlin, "15,45 2 * * *", spring, &["29 03:00 +02:00", "30 02:15 +02:00", "30 02:45 +02:00"]);
    check(berlin, "0 2,3 * * *", spring, &["29 03:00 +02:00", "30 02:00 +02:00", "30 03:00 +02:00"]);
    check(berlin, "0 3 * * *", spring, &["29 03:00 +02:00", "30 03:00 +02:00"]);
    check(berlin, "59 1 * * *", spring, &["29 01:59 +01:00", "30 01:59 +02:00"]);
    check(berlin, "30 * * * *", "2026-03-29T00:00:00Z", &["29 01:30 +01:00", "29 03:30 +02:00"]);
    check(berlin, "*/30 * * * *", "2026-03-29T00:10:00Z", &["29 01:30 +01:00", "29 03:00 +02:00", "29 03:30 +02:00"]);
    let spring = "2026-03-08T04:00:00Z";
    check(new_york, "30 2 * * *", spring, &["08 03:00 -04:00", "09 02:30 -04:00"]);
    check(
        new_york,
        "*/20 1-2 * * *",
        spring,
        &["08 01:00 -05:00", "08 01:20 -05:00", "08 01:40 -05:00", "08 03:00 -04:00", "09 01:00 -04:00"],
    );
    check(new_york, "0 * * * *", "2026-03-08T06:30:00Z", &["08 03:00 -04:00", "08 04:00 -04:00"]);
    // Half an hour is skipped, from 02:00 to 02:30.
    let spring = "2026-10-03T13:00:00Z";
    check(lord_howe, "15 2 * * *", spring, &["04 02:30 +11:00", "05 02:15 +11:00"]);
    check(lord_howe, "45 2 * * *", spring, &["04 02:45 +11:00", "05 02:45 +11:00"]);
    check(lord_howe, "0,10 2 * * *", spring, &["04 02:30 +11:00", "05 02:00 +11:00", "05 02:10 +11:00"]);
    check(
        lord_howe,
        "*/15 * * * *",
        "2026-10-03T15:10:00Z",
        &["04 01:45 +10:30", "04 02:30 +11:00", "04 02:45 +11:00"],
    );
}

#[test]
fn a_clock_put_back() {
    let (berlin, new_york, lord_howe) = ("Europe/Berlin", "America/New_York", "Australia/Lord_Howe");
    let autumn = "2026-10-24T22:00:00Z";
    check(berlin, "30 2 * * *", autumn, &["25 02:30 +02:00", "26 02:30 +01:00"]);
    check(berlin, "15,45 2 * * *", autumn, &["25 02:15 +02:00", "25 02:45 +02:00", "26 02:15 +01:00"]);
    check(
        berlin,
        "*/30 2-3 * * *",
        autumn,
        &["25 02:00 +02:00", "25 02:30 +02:00", "25 03:00 +01:00", "25 03:30 +01:00", "26 02:00 +01:00"],
    );
    check(berlin, "0 * * * *", "2026-10-24T23:30:00Z", &["25 02:00 +02:00", "25 02:00 +01:00", "25 03:00 +01:00"]);
    // From within the hour that comes again.
    check(berlin, "30 2 * * *", "2026-10-25T00:30:00Z", &["26 02:30 +01:00"]);
    check(berlin, "45 2 * * *", "2026-10-25T01:10:00Z", &["26 02:45 +01:00"]);
    let autumn = "2026-11-01T04:00:00Z";
    check(new_york, "30 1 * * *", autumn, &["01 01:30 -04:00", "02 01:30 -05:00"]);
    check(new_york, "0,30 1 * * *", autumn, &["01 01:00 -04:00", "01 01:30 -04:00", "02 01:00 -05:00"]);
    check(
        new_york,
        "*/30 * * * *",
        "2026-11-01T05:10:00Z",
        &["01 01:30 -04:00", "01 01:00 -05:00", "01 01:30 -05:00", "01 02:00 -05:00"],
    );
    // Half an hour comes again, from 01:30 to 02:00.
    let autumn = "2026-04-04T13:30:00Z";
    check(lord_howe, "45 1 * * *", autumn, &["05 01:45 +11:00", "06 01:45 +10:30"]);
    check(lord_howe, "15 1 * * *", autumn, &["05 01:15 +11:00", "06 01:15 +10:30"]);
    check(lord_howe, "30,45 1 * * *", autumn, &["05 01:30 +11:00", "05 01:45 +11:00", "06 01:30 +10:30"]);
    check(
        lord_howe,
        "*/15 * * * *",
        "2026-04-04T14:40:00Z",
        &["05 01:45 +11:00", "05 01:30 +10:30", "05 01:45 +10:30", "05 02:00 +10:30"],
    );
}

/// What nanobot 0.3.5 makes of these, but for what comes twice: there it uses the second time, too.
#[test]
fn patterns_mean_what_they_mean_to_nanobot() {
    let now = [1_774_684_800_000, 1_774_745_999_999, 1_792_888_200_000, 1_835_395_200_000];
    for (expr, tz, expect) in [
        ("*/5 * * * *", "UTC", [1_774_685_100_000, 1_774_746_000_000, 1_792_888_500_000, 1_835_395_500_000]),
        ("0 9 * * *", "Europe/Berlin", [1_774_767_600_000, 1_774_767_600_000, 1_792_915_200_000, 1_835_424_000_000]),
        ("30 2 * * *", "Europe/Berlin", [1_774_746_000_000, 1_774_746_000_000, 1_792_978_200_000, 1_835_400_600_000]),
        ("0 0 29 2 *", "UTC", [1_835_395_200_000, 1_835_395_200_000, 1_835_395_200_000, 1_961_625_600_000]),
        (
            "*/15 9-17 * * mon-fri",
            "America/New_York",
            [1_774_875_600_000, 1_774_875_600_000, 1_793_019_600_000, 1_835_445_600_000],
        ),
        ("0 0 31 * *", "UTC", [1_774_915_200_000, 1_774_915_200_000, 1_793_404_800_000, 1_838_073_600_000]),
        ("0 12 1,15 * *", "Asia/Kolkata", [1_775_025_000_000, 1_775_025_000_000, 1_793_514_600_000, 1_835_505_000_000]),
        ("5 4 * * sun", "UTC", [1_774_757_100_000, 1_774_757_100_000, 1_792_901_100_000, 1_835_841_900_000]),
        ("0 0 13 * 5", "UTC", [1_775_174_400_000, 1_775_174_400_000, 1_793_318_400_000, 1_835_654_400_000]),
        ("@daily", "UTC", [1_774_742_400_000, 1_774_828_800_000, 1_792_972_800_000, 1_835_481_600_000]),
        ("0 9 * * 1#2", "UTC", [1_776_070_800_000, 1_776_070_800_000, 1_794_214_800_000, 1_836_550_800_000]),
        ("0 0 * * 7", "UTC", [1_774_742_400_000, 1_775_347_200_000, 1_793_491_200_000, 1_835_827_200_000]),
        ("*/10 * * * * */20", "UTC", [1_774_684_820_000, 1_774_746_000_000, 1_792_888_220_000, 1_835_395_220_000]),
    ] {
        assert_eq!(now.map(|now| timing(expr, tz).next_after(now)), expect.map(Some), "{expr} in {tz}");
    }
    assert_eq!(now.map(|now| timing("0 0 30 2 *", "UTC").next_after(now)), [None; 4]);
}

#[test]
fn sunday_is_both_ends_of_the_week() {
    let days = |field: &str| {
        let timing = timing(&format!("0 0 * * {field}"), "UTC");
        let mut at = ms("2026-11-29T12:00:00Z");
        let mut days = Vec::new();
        while at < ms("2026-12-06T00:00:00Z") {
            at = timing.next_after(at).unwrap();
            days.push(Timestamp::from_millisecond(i64::try_from(at).unwrap()).unwrap().strftime("%a").to_string());
        }
        // The week begins on a Monday, and its last day is always looked at.
        let end = days.len() - usize::from(at > ms("2026-12-06T00:00:00Z"));
        days[..end].join(" ")
    };
    for (field, expect) in [
        ("0", "Sun"),
        ("7", "Sun"),
        ("sun", "Sun"),
        ("0,7", "Sun"),
        ("5-7", "Fri Sat Sun"),
        ("fri-sun", "Fri Sat Sun"),
        ("0-2", "Mon Tue Sun"),
        ("SUN-TUE", "Mon Tue Sun"),
        ("6-1", "Mon Sat Sun"),
        ("sat-mon", "Mon Sat Sun"),
        ("5-0", "Fri Sat Sun"),
        ("0-6", "Mon Tue Wed Thu Fri Sat Sun"),
        ("1-7/2", "Mon Wed Fri Sun"),
        ("mon,WED,6", "Mon Wed Sat"),
    ] {
        assert_eq!(days(field), expect, "{field}");
    }
}

#[test]
fn other_kinds() {
    let next = |schedule: Schedule, now| schedule.timing(&zones()).map(|timing| timing.next_after(now));
    assert_eq!(next(Schedule::every(1), 5), Ok(Some(6)));
    assert_eq!(next(Schedule::every(0), 5), Err(BadSchedule::Every));
    assert_eq!(next(Schedule { every_ms: Some(-1), ..Schedule::every(1) }, 5), Err(BadSchedule::Every));
    assert_eq!(next(Schedule { every_ms: None, ..Schedule::every(1) }, 5), Err(BadSchedule::Missing("everyMs")));
    assert_eq!(next(Schedule::every(EPOCH_MS_MAX), 5), Ok(None));
    assert_eq!(next(Schedule::at(6), 5), Ok(Some(6)));
    assert_eq!(next(Schedule::at(5), 5), Ok(None));
    assert_eq!(next(Schedule { at_ms: None, ..Schedule::at(5) }, 5), Err(BadSchedule::Missing("atMs")));
    assert_eq!(next(Schedule { at_ms: Some(-5), ..Schedule::at(5) }, 5), Err(BadSchedule::At));
}

#[test]
fn what_is_wrong_is_told_with_its_field() {
    for (schedule, expect) in [
        (Schedule::cron("", None), "schedule.expr: is empty"),
        (Schedule::cron("* * *", None), "schedule.expr: has 3 fields; 5 are expected"),
        (Schedule::cron("* * * * * * *", None), "schedule.expr: has 7 fields"),
        (Schedule::cron("61 * * * *", None), "schedule.expr: the minute `61`: number out of bounds"),
        (Schedule::cron("0 25 * * *", None), "schedule.expr: the hour `25`: number out of bounds"),
        (Schedule::cron("0 0 32 * *", None), "schedule.expr: the day of the month `32`: number out of bounds"),
        (Schedule::cron("0 0 * 13 *", None), "schedule.expr: the month `13`: number out of bounds"),
        (Schedule::cron("0 0 * * 8", None), "schedule.expr: the weekday `8`: number out of bounds"),
        (Schedule::cron("0 0 * * * 60", None), "schedule.expr: the second `60`: number out of bounds"),
        (Schedule::cron("fri * * * *", None), "schedule.expr: the minute `fri`: a number is expected"),
        (Schedule::cron("0 0 * january *", None), "schedule.expr: the month `january`: a month is 1 to 12 or one of"),
        (Schedule::cron("0 0 * * funday", None), "schedule.expr: the weekday `funday`: a weekday is 0 to 7 or one of"),
        (Schedule::cron("*/0 * * * *", None), "schedule.expr: the minute `*/0`: step cannot be zero"),
        (Schedule::cron("5-1 * * * *", None), "schedule.expr: the minute `5-1`: range out of bounds"),
        (Schedule::cron("@often", None), "schedule.expr: `@often` is unknown; there are @hourly"),
        (Schedule::cron(&"1,".repeat(200), None), "schedule.expr: has more than 256 bytes"),
        (Schedule::cron("0 0 * * *", Some("Mars/Olympus")), "schedule.tz `Mars/Olympus` is not a known time zone"),
        (Schedule { tz: Some("UTC".into()), ..Schedule::every(5) }, "schedule.tz can be given for patterns only"),
        (Schedule { kind: "often".into(), ..Schedule::default() }, "schedule.kind `often` is unknown"),
        (Schedule { expr: None, ..Schedule::cron("", None) }, "schedule.expr is missing"),
    ] {
        let error = schedule.timing(&zones()).unwrap_err().to_string();
        assert!(error.starts_with(expect), "{error}");
    }
}

#[test]
fn single_times() {
    let berlin = TimeZone::get("Europe/Berlin").unwrap();
    for (text, expect) in [
        ("2026-12-24T18:30", Some("2026-12-24T17:30:00Z")),
        ("2026-12-24 18:30:15", Some("2026-12-24T17:30:15Z")),
        ("2026-12-24", Some("2026-12-23T23:00:00Z")),
        ("2026-07-01", Some("2026-06-30T22:00:00Z")),
        ("2026-12-24T18:30:00Z", Some("2026-12-24T18:30:00Z")),
        ("2026-12-24T18:30+05:30", Some("2026-12-24T13:00:00Z")),
        ("2026-12-24T18:30[America/New_York]", Some("2026-12-24T23:30:00Z")),
        // Comes twice; is skipped.
        ("2026-10-25T02:30", Some("2026-10-25T00:30:00Z")),
        ("2026-03-29T02:30", Some("2026-03-29T01:00:00Z")),
        ("tomorrow", None),
        ("", None),
        ("2026-13-01", None),
        ("1950-01-01", None),
    ] {
        assert_eq!(time::parse(text, &berlin).ok(), expect.map(ms), "{text}");
    }
    let error = time::parse("tomorrow", &berlin).unwrap_err().to_string();
    assert!(error.starts_with("`tomorrow` is no time; expected is 2026-12-24T18:30"), "{error}");
}

#[test]
fn schedules_in_words() {
    for (schedule, expect) in [
        (Schedule::every(3_600_000), "every 1 h"),
        (Schedule::every(90_000), "every 90 s"),
        (Schedule::every(1500), "every 1500 ms"),
        (Schedule::at(1_774_684_800_000), "at 2026-03-28 08:00:00 UTC"),
        (Schedule::cron("0 9 * * *", Some("Europe/Berlin")), "0 9 * * * (Europe/Berlin)"),
        (Schedule::cron("0 9 * * *", None), "0 9 * * *"),
    ] {
        assert_eq!(schedule.told(&TimeZone::UTC), expect);
    }
}

fn field(max: u8) -> impl Strategy<Value = String> {
    prop_oneof![
        Just("*".to_owned()),
        (0..=max).prop_map(|one| one.to_string()),
        (0..=max, 0..=max).prop_map(|(one, other)| format!("{},{}", one, other)),
        (0..=max, 0..=max).prop_map(|(one, other)| format!("{}-{}", one.min(other), one.max(other))),
        (1..=max).prop_map(|step| format!("*/{step}")),
    ]
}

fn pattern() -> impl Strategy<Value = String> {
    let day = prop_oneof![3 => Just("*".to_owned()), 1 => (1..=28u8).prop_map(|day| day.to_string())];
    let weekday = prop_oneof![3 => Just("*".to_owned()), 1 => field(7)];
    (field(59), field(23), day, weekday)
        .prop_map(|(minute, hour, day, weekday)| format!("{minute} {hour} {day} * {weekday}"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn the_next_moment_is_later_and_none_is_left_out(
        expr in pattern(),
        tz in prop::sample::select(vec!["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "UTC", "Asia/Kolkata"]),
        at in 1_767_225_600_000..1_830_297_600_000_u64,
        later in 0..2_000_000_000_u64,
    ) {
        let timing = timing(&expr, tz);
        let Some(next) = timing.next_after(at) else { return Ok(()) };
        prop_assert!(next > at);
        // Asked from anywhere before it, it is the same; asked from it on, it is a later one.
        let between = at + later % (next - at);
        prop_assert_eq!(timing.next_after(between), Some(next));
        prop_assert_eq!(timing.next_after(next - 1), Some(next));
        prop_assert!(timing.next_after(next).is_none_or(|after| after > next));
    }

    #[test]
    fn times_of_day_come_once_a_day(
        hour in 0..24u8,
        minute in 0..60u8,
        tz in prop::sample::select(vec!["Europe/Berlin", "America/New_York", "Australia/Lord_Howe"]),
    ) {
        let (timing, zone) = (timing(&format!("{minute} {hour} * * *"), tz), TimeZone::get(tz).unwrap());
        let day = |at: u64| Timestamp::from_millisecond(i64::try_from(at).unwrap()).unwrap().to_zoned(zone.clone()).date();
        let first = time::parse("2026-01-01", &zone).unwrap();
        let mut at = first - 1;
        let mut expect = day(first);
        while expect.year() == 2026 {
            at = timing.next_after(at).unwrap();
            prop_assert_eq!(day(at), expect);
            expect = expect.tomorrow().unwrap();
        }
    }

    #[test]
    fn no_text_panics(expr in "[*0-9a-zA-Z,/#@+ -]{0,24}", at in 0..EPOCH_MS_MAX) {
        let schedule = Schedule::cron(&expr, Some("Europe/Berlin"));
        if let Ok(timing) = schedule.timing(&zones()) {
            prop_assert!(timing.next_after(at).is_none_or(|next| next > at));
        }
    }
}
