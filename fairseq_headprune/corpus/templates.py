"""Sentence templates: German and English with named slots, in the order each language wants.

A slot is filled by :mod:`fairseq_headprune.corpus.sentences`. A finite verb in braces (``{habe}``, ``{have}``) agrees
with ``{subject}``, one with a 2 (``{habe2}``) with ``{subject2}``. The German participle, infinitive or separated
prefix stands at the end, subordinate clauses are verb-final and a fronted adverbial swaps subject and verb: this is
what a decoder has to reorder.
"""

#: (weight, German, English); the weight is how often the template is drawn.
TEMPLATES: list[tuple[int, str, str]] = [
    # Counted things: perfect tense, future, modal verbs.
    (6, "{subject} {habe} {count} {things} {done}.", "{subject} {did} {count} {things}."),
    (6, "am {weekday} {habe} {subject} {count} {things} {done}.", "on {weekday} {subject} {did} {count} {things}."),
    (5, "{subject} {muss} am {weekday} {count} {things} {do}.", "{subject} must {do} {count} {things} on {weekday}."),
    (5, "im {month} {will} {subject} {count} {things} {do}.", "in {month} {subject} {want} to {do} {count} {things}."),
    (
        5,
        "um {clock} {werde} {subject} {count} {things} {do}.",
        "at {clock} {subject} will {do} {count} {things}.",
    ),
    (
        6,
        "{subject} {sage}, dass {subject2} {count} {things} {done} {habe2}.",
        "{subject} {say} that {subject2} {have2} {done} {count} {things}.",
    ),
    (
        6,
        "weil {subject} {count} {things} {done} {habe}, {muss2} {subject2} {count2} {things2} {do2}.",
        "because {subject} {did} {count} {things}, {subject2} must {do2} {count2} {things2}.",
    ),
    # Dates and years.
    (
        6,
        "{subject} {habe} am {full_date}, {count} {things} {done}.",
        "{subject} {did} {count} {things} on {full_date}.",
    ),
    (5, "{subject} {bin} am {day_month} nach {town} gefahren.", "{subject} went to {town} on {day_month}."),
    (4, "{subject} {wurde} am {long_date} geboren.", "{subject} {was} born on {long_date}."),
    (5, "{building} wurde im Jahr {year} gebaut.", "{building} was built in {year}."),
    (
        5,
        "obwohl {building} im Jahr {year} gebaut wurde, ist {pronoun} erst am {day_month} eröffnet worden.",
        "although {building} was built in {year}, it was not opened until {day_month}.",
    ),
    # Times and separable verbs.
    (5, "{subject} {stehe} am {weekday} um {spoken} auf.", "{subject} {get} up at {spoken} on {weekday}."),
    (5, "{vehicle} nach {town} fährt um {clock} ab.", "{vehicle} to {town} leaves at {clock}."),
    (
        5,
        "{subject} {glaube}, dass {vehicle} um {clock} in {town} ankommt.",
        "{subject} {believe} that {vehicle} arrives in {town} at {clock}.",
    ),
    (5, "{event} fängt am {weekday} um {spoken} an.", "{event} begins at {spoken} on {weekday}."),
    (5, "wenn {event} um {spoken} aufhört, {rufe} {subject} an.", "when {event} ends at {spoken}, {subject} {call}."),
    (
        5,
        "am {day_month} {komme} {subject} um {clock} zurück.",
        "on {day_month} {subject} {come} back at {clock}.",
    ),
    # Money.
    (6, "{article} kostet {price}.", "{article} costs {price}."),
    (5, "{subject} {habe} für {count} {things} {price} bezahlt.", "{subject} paid {price} for {count} {things}."),
    (
        5,
        "{article} ist um {whole_price} teurer als {article2}.",
        "{article} is {whole_price} more expensive than {article2}.",
    ),
    (5, "am {weekday} {gebe} {subject} {whole_price} aus.", "on {weekday} {subject} {spend} {whole_price}."),
    (
        5,
        "{subject} {habe} gesagt, dass {article} {price} kostet.",
        "{subject} said that {article} costs {price}.",
    ),
    # Measures.
    (5, "{subject} {bin} am {weekday} {distance} gelaufen.", "{subject} walked {distance} on {weekday}."),
    (4, "{building} ist {length} hoch und {length2} breit.", "{building} is {length} high and {length2} wide."),
    (5, "das Paket von {town} wiegt {weight}.", "the package from {town} weighs {weight}."),
    (
        5,
        "{subject} {brauche} {weight} Mehl und {volume} Milch.",
        "{subject} {need} {weight} of flour and {volume} of milk.",
    ),
    (5, "am {day_month} waren es in {town} {temperature}.", "on {day_month} it was {temperature} in {town}."),
    (5, "{subject} {muss} {duration} in {town} warten.", "{subject} must wait in {town} for {duration}."),
    (
        5,
        "nachdem {subject} {duration} gewartet {hatte}, {bin2} {subject2} nach {town} gefahren.",
        "after {subject} had waited for {duration}, {subject2} went to {town}.",
    ),
    # Numbers alone, ordinals, shares.
    (4, "die Summe von {number} und {number2} ist {sum}.", "the sum of {number} and {number2} is {sum}."),
    (
        4,
        "{subject} {wohne} im {ordinal}n Stock in Zimmer {number}.",
        "{subject} {live} on the {ordinal} floor in room {number}.",
    ),
    (
        5,
        "{subject} {habe} zum {ordinal}n Mal {count} {things} {done}.",
        "{subject} {did} {count} {things} for the {ordinal} time.",
    ),
    (5, "{percent} Prozent der {group} kommen aus {town}.", "{percent} percent of the {group} come from {town}."),
    (4, "auf Seite {number} steht die {ordinal} Frage.", "the {ordinal} question is on page {number}."),
]
