"""The words of the embedded corpus: (German, English) pairs, and verbs by the person of their subject."""

#: Index of a subject's person in the verb tables: ich / I, er / he, wir / we.
FIRST, THIRD, PLURAL = range(3)

#: German, English, person.
SUBJECTS = [
    ("ich", "I", FIRST),
    ("er", "he", THIRD),
    ("sie", "she", THIRD),
    ("wir", "we", PLURAL),
    ("sie", "they", PLURAL),
    ("Anna", "Anna", THIRD),
    ("Paul", "Paul", THIRD),
    ("Frau Weber", "Mrs. Weber", THIRD),
    ("Herr Schmidt", "Mr. Schmidt", THIRD),
    ("mein Bruder", "my brother", THIRD),
    ("meine Schwester", "my sister", THIRD),
    ("unser Lehrer", "our teacher", THIRD),
    ("seine Mutter", "his mother", THIRD),
    ("ihr Vater", "her father", THIRD),
    ("die Köchin", "the cook", THIRD),
    ("der Bäcker", "the baker", THIRD),
    ("der Arzt", "the doctor", THIRD),
    ("die Nachbarin", "the neighbor", THIRD),
    ("der Bauer", "the farmer", THIRD),
    ("die Kinder", "the children", PLURAL),
    ("die Gäste", "the guests", PLURAL),
    ("unsere Freunde", "our friends", PLURAL),
    ("meine Eltern", "my parents", PLURAL),
    ("die Schüler", "the students", PLURAL),
]

#: Finite verbs: three German and three English forms in the order FIRST, THIRD, PLURAL.
FINITE_DE = {
    "habe": ("habe", "hat", "haben"),
    "hatte": ("hatte", "hatte", "hatten"),
    "bin": ("bin", "ist", "sind"),
    "werde": ("werde", "wird", "werden"),
    "wurde": ("wurde", "wurde", "wurden"),
    "muss": ("muss", "muss", "müssen"),
    "kann": ("kann", "kann", "können"),
    "will": ("will", "will", "wollen"),
    "sage": ("sage", "sagt", "sagen"),
    "glaube": ("glaube", "glaubt", "glauben"),
    "stehe": ("stehe", "steht", "stehen"),
    "komme": ("komme", "kommt", "kommen"),
    "gebe": ("gebe", "gibt", "geben"),
    "rufe": ("rufe", "ruft", "rufen"),
    "wohne": ("wohne", "wohnt", "wohnen"),
    "brauche": ("brauche", "braucht", "brauchen"),
}
FINITE_EN = {
    "have": ("have", "has", "have"),
    "was": ("was", "was", "were"),
    "want": ("want", "wants", "want"),
    "say": ("say", "says", "say"),
    "believe": ("believe", "believes", "believe"),
    "get": ("get", "gets", "get"),
    "come": ("come", "comes", "come"),
    "spend": ("spend", "spends", "spend"),
    "call": ("call", "calls", "call"),
    "live": ("live", "lives", "live"),
    "need": ("need", "needs", "need"),
}

#: Countable things in the plural (nominative and accusative are alike).
THINGS = [
    ("Äpfel", "apples"),
    ("Bücher", "books"),
    ("Briefe", "letters"),
    ("Eier", "eggs"),
    ("Stühle", "chairs"),
    ("Flaschen", "bottles"),
    ("Karten", "tickets"),
    ("Hemden", "shirts"),
    ("Bilder", "pictures"),
    ("Lampen", "lamps"),
    ("Blumen", "flowers"),
    ("Tische", "tables"),
    ("Schlüssel", "keys"),
    ("Brote", "loaves"),
    ("Fahrräder", "bicycles"),
    ("Taschen", "bags"),
]

#: What one does with things: German participle, German infinitive, English past, participle, infinitive.
ACTIONS = [
    ("gekauft", "kaufen", "bought", "bought", "buy"),
    ("verkauft", "verkaufen", "sold", "sold", "sell"),
    ("bestellt", "bestellen", "ordered", "ordered", "order"),
    ("gezählt", "zählen", "counted", "counted", "count"),
    ("mitgebracht", "mitbringen", "brought along", "brought along", "bring along"),
    ("abgeholt", "abholen", "picked up", "picked up", "pick up"),
    ("zurückgegeben", "zurückgeben", "returned", "returned", "return"),
    ("weggeworfen", "wegwerfen", "threw away", "thrown away", "throw away"),
    ("verschenkt", "verschenken", "gave away", "given away", "give away"),
    ("gefunden", "finden", "found", "found", "find"),
]

#: Single articles for sale: German article, noun, English noun.
ARTICLES = [
    ("der", "Tisch", "table"),
    ("die", "Lampe", "lamp"),
    ("das", "Buch", "book"),
    ("der", "Mantel", "coat"),
    ("die", "Tasche", "bag"),
    ("das", "Hemd", "shirt"),
    ("der", "Stuhl", "chair"),
    ("die", "Uhr", "watch"),
    ("das", "Fahrrad", "bicycle"),
    ("der", "Schrank", "closet"),
    ("die", "Karte", "ticket"),
    ("das", "Bild", "picture"),
]

#: Adjectives in the weak nominative singular.
ADJECTIVES = [("alte", "old"), ("neue", "new"), ("rote", "red"), ("kleine", "small"), ("große", "big")]

#: Buildings, with the German pronoun.
BUILDINGS = [
    ("die Brücke", "the bridge", "sie"),
    ("der Turm", "the tower", "er"),
    ("das Rathaus", "the town hall", "es"),
    ("die Kirche", "the church", "sie"),
    ("der Bahnhof", "the station", "er"),
    ("die Schule", "the school", "sie"),
    ("das Museum", "the museum", "es"),
    ("die Mauer", "the wall", "sie"),
]

#: What starts or ends at a time.
EVENTS = [
    ("der Unterricht", "the class"),
    ("das Konzert", "the concert"),
    ("die Sitzung", "the meeting"),
    ("der Film", "the film"),
    ("das Spiel", "the game"),
    ("die Feier", "the party"),
]

#: Vehicles that leave and arrive.
VEHICLES = [("der Zug", "the train"), ("der Bus", "the bus"), ("das Schiff", "the ship"), ("die Fähre", "the ferry")]

#: Towns as goals ("nach X", "to X").
TOWNS = [
    ("Berlin", "Berlin"),
    ("München", "Munich"),
    ("Köln", "Cologne"),
    ("Wien", "Vienna"),
    ("Rom", "Rome"),
    ("Prag", "Prague"),
    ("Hamburg", "Hamburg"),
    ("Zürich", "Zurich"),
]

#: Groups in the genitive plural ("der Schüler", "of the students").
GROUPS = [
    ("Schüler", "students"),
    ("Gäste", "guests"),
    ("Bücher", "books"),
    ("Wähler", "voters"),
    ("Häuser", "houses"),
    ("Züge", "trains"),
]
